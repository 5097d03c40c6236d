#!/bin/sh
# install.sh PACKAGE…: installs the Debian packages that are missing, when this
# machine has apt and we may use it; otherwise it says what to install.
set -eu
missing=
for p in "$@"; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
	echo "install these packages by hand:$missing" >&2
	exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
	if ! sudo -n true 2>/dev/null; then
		echo "run as root: apt-get install$missing" >&2
		exit 1
	fi
	sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
# Word splitting is meant: $missing is a list of package names.
# shellcheck disable=SC2086
if ! $sudo apt-get install -y --no-install-recommends $missing >/dev/null 2>&1; then
	$sudo apt-get update >/dev/null
	$sudo apt-get install -y --no-install-recommends $missing >/dev/null
fi
