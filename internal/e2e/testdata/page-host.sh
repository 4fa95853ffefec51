# Makes a host for the commands of a page. $1 is the directory of the test's own files. What
# is written below the directories of the loop is in memory and disappears with this mount
# namespace.
mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir "$1/over"
mount -t tmpfs tmpfs "$1/over"
for dir in etc run usr/local var; do
	over=$1/over/${dir//\//-}
	mkdir -p "$over/upper" "$over/work"
	mount -t overlay -o "lowerdir=/$dir,upperdir=$over/upper,workdir=$over/work" overlay "/$dir"
done
ip link set lo up
mkdir -p /etc/ssh/ssh_config.d
cat >/etc/ssh/ssh_config.d/page.conf <<END
Host *
	IdentityFile $1/key
	StrictHostKeyChecking accept-new
	UserKnownHostsFile $1/known_hosts
	ControlPath $1/ssh
	LogLevel ERROR
	ConnectTimeout 2
END
# Stands for systemd: starts and stops a unit's only process.
cat >/usr/local/sbin/systemctl <<END
#!/bin/bash -e
pid=$1/\$3.pid
case "\$1 \$2" in
"enable --now")
	setsid \$(sed -n 's/^ExecStart=//p' "/etc/systemd/system/\$3.service") </dev/null >"$1/hostd.log" 2>&1 &
	echo \$! >"\$pid"
	until grep -q 'serving on' "$1/hostd.log"; do
		[ -e "/proc/\$!" ] || exit 1
		sleep 0.1
	done ;;
"disable --now")
	kill "\$(cat "\$pid")"
	while [ -e "/proc/\$(cat "\$pid")" ]; do sleep 0.1; done
	rm "\$pid" ;;
*) exit 2 ;;
esac
END
chmod +x /usr/local/sbin/systemctl
sleep infinity &
until grep -q sleep "/proc/$!/comm"; do :; done # it is one of the host's processes from the beginning
touch "$1/hostd.log" "$1/known_hosts" "$1/console" "$1/ready"
wait # bash reaps the processes whose parents have ended
