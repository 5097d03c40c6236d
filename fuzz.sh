#!/bin/sh
# fuzz.sh TIME: runs each fuzz target for TIME, one after the other.
set -eu
time=$1
grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do
	grep -o '^func Fuzz[A-Za-z0-9_]*' "$file" | sed 's/^func //' | while read -r target; do
		echo "$(dirname "$file") $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$(dirname "$file")" >/dev/null ||
			{ go test -run "^$target\$" "$(dirname "$file")"; exit 1; }
	done
done
