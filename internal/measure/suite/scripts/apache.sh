mkdir -m 755 scratch/site
head -c 4096 /dev/zero | tr '\0' x >scratch/site/test.html
cat >scratch/conf <<END
ServerName localhost
ServerRoot "$PWD/scratch"
DefaultRuntimeDir "$PWD/scratch"
Listen 127.0.0.1:8088
PidFile pid
ErrorLog /dev/stderr
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
User www-data
Group www-data
ChrootDir "$PWD/scratch/site"
DocumentRoot /
END
chmod 644 scratch/site/test.html
LD_PRELOAD=libgcc_s.so.1 apache2 -f "$PWD/scratch/conf" -D FOREGROUND >&2 &
server=$!
stop() { while kill $server 2>/dev/null; do sleep 0.05; done; rm -rf scratch; }
trap stop EXIT
until [ -s scratch/pid ]; do kill -0 $server; sleep 0.05; done
ab -q -n {{.Pick 3000 1000000}} -c 100 http://127.0.0.1:8088/test.html
