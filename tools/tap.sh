# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2154 # of who reads this
#
# Results in TAP, for tests that are written in sh. To be read by them with "." when $tmp is a
# directory, in which "log" may have what tells more of a failure.

n=0 failed=0
# ok SENTENCE CONDITION...: one test
ok() {
	n=$((n + 1))
	sentence=$1
	shift
	if "$@" >"$tmp/why" 2>&1; then
		echo "ok $n - $sentence"
	else
		echo "not ok $n - $sentence"
		tail -n 10 "$tmp/log" 2>/dev/null | cat - "$tmp/why" | sed 's/^/# /'
		failed=1
	fi
}
is() { [ "$1" = "$2" ] || { printf '%s\n' "got: $1" "not: $2"; return 1; }; }

end() {
	echo "1..$n"
	exit $failed
}
