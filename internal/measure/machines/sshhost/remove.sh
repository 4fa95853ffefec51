remove() {
	dir=$1 name=${1##*/} engine= image=
	remove_domains "$dir" || return 1
	if [ -s "$dir/.engine" ]; then
		{ read -r engine && read -r image; } <"$dir/.engine"
		all=$("$engine" ps --all --format '{{.Names}}' 9<&-) || return 1
		own=$(echo "$all" | grep "^$name-" || :)
		[ -z "$own" ] || "$engine" rm --force $own >/dev/null 9<&- || return 1
	fi
	rm -rf -- "$dir"/* 2>/dev/null || [ -z "$image" ] ||
		"$engine" run --rm --network none --volume "$dir:$dir" "$image" sh -c 'rm -rf -- "$1"/*' remove "$dir" >/dev/null 9<&-
	rm -rf -- "$dir"
}
