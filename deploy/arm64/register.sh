#!/bin/sh
# arm64.sh calls this in a user namespace: aarch64 programs then start under qemu.
set -eu
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
# F: qemu is opened now, so that the root need not contain it.
printf '%s' ":qemu-aarch64:M:0:$magic:$mask:$1:OCF" >/proc/sys/fs/binfmt_misc/register
