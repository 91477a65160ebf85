# SPDX-License-Identifier: GPL-2.0
# Completion of twheelctl for bash. What there is, its own help tells.

_twheelctl()
{
	local cur=$2 prev=$3 command=${COMP_WORDS[1]} words=''

	COMPREPLY=()
	case $prev in
	--clock) words='monotonic boottime realtime tai manual' ;;
	--device) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
	esac
	if [[ $COMP_CWORD -eq 1 ]]; then
		words="$(twheelctl --help 2>/dev/null | sed -n 's/^  twheelctl \([a-z]*\).*/\1/p')
			--help --version"
	elif [[ $cur == -* ]]; then
		words=$(twheelctl "$command" --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p')
	elif [[ -z $words && $command != arm && $prev != --* ]]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -o filenames -F _twheelctl twheelctl
