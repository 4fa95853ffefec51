dir=$1
shift
for engine; do command -v "$engine" >/dev/null && break; engine=; done
[ -n "$engine" ] || exit 0
echo "$engine"
names=$("$engine" ps --all --format '{{.Names}}' 2>&1) || { echo "$names" | tail -n 1 >&2; exit 1; }
echo "$names" | sed -n 's/^\(unnest-run-[^-]*\)-.*/\1 &/p' | while read -r run name; do
	[ -e "${dir%/*}/$run" ] || "$engine" rm --force "$name" >/dev/null
done
"$engine" --version
