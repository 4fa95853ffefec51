# Joins the swarm of manager $3 with address $1 and token $2. The command ends after 20 s, and Docker goes on by itself: wait two minutes more.
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
