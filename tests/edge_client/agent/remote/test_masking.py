"""No secret that is planted in a text survives, and what an operator needs to read does."""

import json
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edge_client.agent.remote.masking import Hidden, Masker
from schemas.security.enrolment import PREFIX

DATA, HOME = "/srv/own photos", "/home/alice"
MASKER = Masker(
    Hidden(
        data=(DATA,),
        places={HOME: "~", f"{HOME}/state": "<state>"},
        secrets=("hunter two", "s3cret/broker"),
        names=("IMG_0012.jpg", "it's me.png", "first day", "x", "17"),
        suffixes=frozenset({".jpg", ".png"}),
    )
)
SURROUNDINGS = st.text(string.ascii_lowercase + " .,:;()'\"\n", max_size=30)
# Marked, so that a secret is no part of its surroundings.
SECRETS = st.text(
    string.ascii_letters + string.digits + "!#$%&*+-./:;=?^_{|}~@", min_size=1, max_size=30
).map(lambda text: f"Q{text}7Z")
KEYS = st.sampled_from(
    ["password", "PASSWORD", "broker_password", "apiKey", "api-key", "token", "accessToken", "tokens",
     "X-Amz-Signature", "client_secret", "db.passphrase", "psk", "Authorization", "cookie"]
)  # fmt: skip
SIGNS = st.sampled_from(["=", ": ", " = ", '": "', "': '"])
PEM_BODY = st.text(string.ascii_letters + string.digits + "+/=\n", min_size=20, max_size=200)


@given(SURROUNDINGS, KEYS, SIGNS, SECRETS, SURROUNDINGS)
def test_a_value_of_a_secret_key_vanishes(before, key, sign, secret, after):
    masked = MASKER.text(f"{before} {key}{sign}{secret} {after}")
    assert secret not in masked
    assert key in masked or "<" in masked


@given(SURROUNDINGS, SECRETS, SECRETS, st.sampled_from(["mqtt", "mqtts", "https", "redis"]))
def test_the_credentials_of_an_address_vanish_and_its_host_stays(before, user, password, scheme):
    masked = MASKER.text(f"{before} {scheme}://{user}:{password}@broker.example:1883 refused")
    assert user not in masked
    assert password not in masked
    assert "broker.example:1883" in masked or "<" in masked


@given(SURROUNDINGS, PEM_BODY, SURROUNDINGS, st.booleans(), st.booleans())
def test_a_key_vanishes_even_if_a_part_of_it_was_cut_off(before, body, after, begins, ends):
    assume(begins or ends)
    begin = "-----BEGIN EC PRIVATE KEY-----\n" if begins else ""
    end = "\n-----END EC PRIVATE KEY-----" if ends else ""
    masked = MASKER.text(f"{before}{begin}{body}{end}{after}")
    assert body not in masked


@given(SURROUNDINGS, st.text(string.ascii_letters + string.digits + "-_", min_size=5, max_size=300))
def test_an_enrolment_code_vanishes(before, code):
    assert code not in MASKER.text(f"{before} {PREFIX}{code} was refused") or code in before


@given(SURROUNDINGS, st.text(string.ascii_letters + "/ ._-", max_size=40))
def test_the_folder_of_the_data_vanishes_with_what_is_in_it(before, path):
    masked = MASKER.text(f"{before} {DATA}/{path}Secret\nnext line")
    assert DATA not in masked
    assert "Secret" not in masked
    assert masked.endswith("next line")


@given(SURROUNDINGS, st.sampled_from(["IMG_0012.jpg", "it's me.png", "first day"]), SURROUNDINGS)
def test_names_of_data_files_vanish(before, name, after):
    assert name not in MASKER.text(f"{before} {name} {after}")


@given(
    st.recursive(
        SECRETS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
    )
)
def test_no_field_of_a_document_has_a_secret(secret):
    planted = {"lines": [{"message": f"password={secret}", "token": secret}], "password": "Qopen7Z"}
    masked = json.dumps(MASKER.document(planted))
    assert "Qopen7Z" not in masked
    if isinstance(secret, str):
        assert secret not in masked


@given(st.text(max_size=500))
def test_masking_twice_changes_nothing_more_that_is_secret(text):
    masked = MASKER.text(f"{text} token=Qabc7Z")
    assert "Qabc7Z" not in masked
    assert "Qabc7Z" not in MASKER.text(masked)


@pytest.mark.parametrize(
    "line",
    [
        "round 3 of run-1 has begun [device=pi-3]",
        "the broker mqtts://10.0.0.7:8883 refuses connections",
        f"blob {'0123456789abcdef' * 4} is fetched",
        '  File "/usr/lib/python3/site-packages/paho/mqtt/client.py", line 12, in connect',
        "/opt/Environment3/lib/python311/sitepackages/edgeclient/main is executed",
        "trains with torch or onnx; 300 MB are free; session 17",
        "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
        "at 12:30 me@host wrote to a:b; see mqtt://host:1883 and x@y",
        "author: somebody, passenger: 3, tokenizer=words, spin: 4",
    ],
)
def test_ordinary_lines_stay_as_they_are(line):
    assert MASKER.text(line) == line


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("mqtt://me:hunter@host:1883/x", "mqtt://<secret>@host:1883/x"),
        ("GET https://store/blobs/abc?sig=1 failed", "GET https://store/<secret> failed"),
        ("run --password hunter --once", "run --password <secret> --once"),
        ("Authorization: Bearer abc.def", "Authorization: <secret>"),
        (f"the state is {HOME}/state/models", "the state is <state>/models"),
        (f"--data 'folder:{DATA}#train' is empty", "--data 'folder:<data>' is empty"),
        (f"{DATA}2 is another folder", f"{DATA}2 is another folder"),
        (f"cannot read {DATA}/a/it's me.png", "cannot read <data>"),
        (f"'{DATA}/a/it's me.png' is gone", "'<data>' is gone"),
        ("it said hunter two", "it said <secret>"),
        ("as s3cret%2Fbroker", "as <secret>"),
        ("cannot read 'my holiday.JPG'", "cannot read 'my <file>'"),
        ("key abcdefghijABCDEFGHIJ0123456789abcdefghijABCDEFGHIJ", "key <encoded>"),
    ],
)
def test_what_is_hidden_is_replaced_by_a_word(line, masked):
    assert MASKER.text(line) == masked


@pytest.mark.parametrize(
    "line",
    [
        r'{"log": "{\"password\": \"my Qx7Z words\", \"a\": 1}"}',
        r'{"log": "{\\\"password\\\": \\\"Qx7Z\\\"}"}',
        "<password>Qx7Z words</password>",
        '<db:password type="x">Qx7Z</db:password>',
        "<secret>Qx7Z</secret>",
        "<token><![CDATA[Qx7Z]]></token>",
        '<add key="password" value="Qx7Z"/>',
        "password => Qx7Z",
        "'password' => 'a Qx7Z'",
        "('password', 'Qx7Z')",
        "tokens: a, Qx7Z",
        'tokens=["a", "b Qx7Z"]',
        'passwords: "a", "Qx7Z"',
        "Cookie: a=1; session=Qx7Z",
        "Set-Cookie: x=y; Qx7Z=4; Path=/",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.Qx7Z is refused",
        "curl -u alice:Qx7Z host",
        "curl -ualice:Qx7Z host",
        'curl --user "alice:a Qx7Z" host',
        "ssh alice:Qx7Z@host failed",
        "(alice:p@Qx7Z@host)",
        "db_pw=Qx7Z",
    ],
)
def test_secrets_in_other_forms_vanish(line):
    assert "Qx7Z" not in MASKER.text(line)


def test_all_items_of_a_secret_field_vanish():
    assert "Qx7Z" not in json.dumps(MASKER.document({"passwords": ["a", "Qx7Z"], "auth": {"alice": "Qx7Z"}}))


def test_a_root_folder_or_an_empty_path_hides_nothing():
    assert Masker(Hidden(data=("", "/", "."), places={"/": "~"})).text("/etc/x in .") == "/etc/x in ."


@pytest.mark.parametrize(
    "piece",
    [
        "token",
        "<secret>",
        "a:b@",
        "eyJa.",
        "pw=a, ",
        "pw: [",
        'pw:\\"',
        "-----BEGIN X-----",
        "a://",
        "password: ",
        "A1a",
        "--token ",
        '"',
        DATA,
        "IMG_0012",
    ],
)
def test_long_hostile_text_is_masked_in_linear_time(piece):
    # A pattern of quadratic time would exceed the limit of a test.
    MASKER.text(piece * (60_000 // len(piece)))
