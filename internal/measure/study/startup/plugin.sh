set -e
ip netns add "$1"
trap 'ip netns delete "$1"' EXIT
export CNI_CONTAINERID="$1" CNI_NETNS="/run/netns/$1" CNI_IFNAME=eth0 CNI_PATH="${2%/*}"
for command in ADD DEL; do
	answer=$(CNI_COMMAND=$command "$2" <"$3") || { echo "$command: $answer" >&2; exit 1; }
done
