rm -f db/sock
mariadbd --no-defaults --user=root --datadir="$PWD/db" --socket=sock --pid-file=pid \
  --skip-networking --skip-grant-tables --innodb-buffer-pool-size=128M --innodb-log-file-size=16M \
  --innodb-flush-method=fsync --innodb-use-native-aio=0 \
  --innodb-buffer-pool-dump-at-shutdown=0 --innodb-buffer-pool-load-at-startup=0 >&2 &
server=$!
stop() { while kill $server 2>/dev/null; do sleep 0.05; done; }
trap stop EXIT
until [ -s db/pid ] && [ -S db/sock ]; do kill -0 $server; sleep 0.05; done
