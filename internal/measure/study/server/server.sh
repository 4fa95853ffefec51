serve() {
	trap 'kill -s KILL "$server"; wait "$server"; exit' TERM
	sh -c 'echo $$; exec "$@"' sh "$@" </dev/null & server=$!
	wait "$server"
	echo "exit code $?: the server has ended"
}
exec 2>&1
while read -r round; do
	[ -z "$serving" ] || { kill "$serving"; wait "$serving"; } 2>/dev/null
	echo "$round"
	case $round in *stop*) serving=; continue ;; esac
	serve "$@" & serving=$!
done
[ -z "$serving" ] || kill "$serving" 2>/dev/null
