set -e
container=$(${8} inspect --format '{{.State.Pid}}' "$1")
gateway=$2 address=$3 mac=$4 peer=$5 peermac=$6 node=$7
ip netns add overlay
ip -n overlay link set lo up
ip -n overlay link add br0 type bridge vlan_default_pvid 0
ip -n overlay address add "$gateway/24" dev br0
ip -n overlay link set br0 up
ip link add vxlan0 mtu 1450 type vxlan id 4097 dstport 4789 learning proxy l2miss l3miss
ip link set vxlan0 netns overlay
ip -n overlay link set vxlan0 master br0 up
ip link add ovveth0 mtu 1450 type veth peer name ovveth1 mtu 1450 address "$mac"
ip link set ovveth0 netns overlay
ip -n overlay link set ovveth0 name veth0 master br0 up
ip link set ovveth1 netns "$container"
inside() { nsenter --net --target "$container" -- "$@"; }
inside ip link set ovveth1 name eth0 up
inside ip address add "$address/24" dev eth0
ip -n overlay neighbour add "$peer" lladdr "$peermac" dev vxlan0 nud permanent
bridge -n overlay fdb add "$peermac" dev vxlan0 dst "$node" self permanent
