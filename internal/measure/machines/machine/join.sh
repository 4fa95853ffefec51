# Joins the swarm of manager $3 with address $1 and token $2. Docker gives that 20 s and then goes on by itself, so a slow machine waits for the end.
said=$(docker swarm join --advertise-addr "$1" --token "$2" "$3" 2>&1) && exit
case $said in
*'Timeout was reached before node joined'*)
	for i in $(seq 120); do
		[ "$(docker info --format '{{.Swarm.LocalNodeState}}')" != active ] || exit 0
		sleep 1
	done ;;
esac
echo "$said" >&2
exit 1
