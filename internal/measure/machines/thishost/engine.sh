set -e
socket=$1
mkdir -p /mnt/cni "${socket%/*}"
cat >/mnt/nerdctl.toml <<END
address = "$socket"
data_root = "/mnt/nerdctl"
cni_path = "/usr/lib/cni"
cni_netconfpath = "/mnt/cni"
END
cat >/mnt/containerd.toml <<END
version = 2
root = "/mnt/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
END
setsid containerd --config /mnt/containerd.toml --address "$socket" >/mnt/containerd.log 2>&1 </dev/null &
for i in $(seq 100); do nerdctl info >/dev/null 2>&1 && exit; sleep 0.1; done
echo "containerd does not answer: $(tail -n 2 /mnt/containerd.log)" >&2
exit 1
