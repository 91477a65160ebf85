#compdef twheelctl
# SPDX-License-Identifier: GPL-2.0
# Completion of twheelctl for zsh. What there is, its own help tells.

_twheelctl() {
	local -a list

	if (( CURRENT == 2 )); then
		list=(${(f)"$(_call_program commands $words[1] --help 2>/dev/null |
			sed -n 's/^  twheelctl \([a-z]*\).*/\1/p')"} --help --version)
		compadd -a list
		return
	fi
	case $words[CURRENT-1] in
	(--clock) compadd monotonic boottime realtime tai manual; return ;;
	(--device) _files; return ;;
	esac
	if [[ $words[CURRENT] == -* ]]; then
		list=(${(f)"$(_call_program options $words[1] $words[2] --help 2>/dev/null |
			sed -nE 's/^  (--[a-z-]*)( [A-Z]+)?  +(.*)/\1:\3/p')"})
		_describe -o option list
	elif [[ $words[2] != arm && $words[CURRENT-1] != --* ]]; then
		_files
	fi
}

_twheelctl "$@"
