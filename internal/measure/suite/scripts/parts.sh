{{/* An empty directory, which is removed however the script ends. */ -}}
{{define "scratch"}}rm -rf scratch
trap 'rm -rf scratch' EXIT
mkdir scratch
{{end}}

{{- /* What stands between "time" and "timed" is timed, and the last line printed says how long it took. */ -}}
{{define "time"}}TIMEFORMAT='seconds %3R'
{ time {
{{end}}{{define "timed"}}
} 2>&9; } 9>&2 2>&1
{{end}}

{{- /* The file text of so many bytes: 5000 words, the first ones frequent, so that it compresses. It is the same on every machine. */ -}}
{{define "words"}}perl - {{.}} >text <<'END'
{{template "words.pl"}}END
{{end}}

{{- /* melody.wav of so many seconds: stereo of 44.1 kHz, tones that fade, with noise. */ -}}
{{define "melody"}}perl - {{.}} >melody.wav <<'END'
{{template "melody.pl"}}END
{{end}}

{{- /* Two files in FASTA: family, a protein and its variants, and database, unrelated proteins of 300 amino acids. The argument
is the number of variants, their length and the number of unrelated proteins. */ -}}
{{define "proteins"}}perl - {{.}} <<'END'
{{template "proteins.pl"}}END
{{end}}

{{- /* An image of 12 megapixels in the paper's profile: rows of the same noise, each moved. */ -}}
{{define "image"}}perl - {{.Pick "640 480" "4288 2848"}} >image.ppm <<'END'
{{template "image.pl"}}END
{{end}}

{{- /* tree.pl, and a text of so many bytes. Trees that are much larger than the text repeat it and compress better. */ -}}
{{define "tree"}}cat >tree.pl <<'END'
{{template "tree.pl"}}END
perl tree.pl text {{.}} >text
{{end}}

{{- /* Source trees of about as many files as Linux 2.6.32 has, which the paper unpacked. */ -}}
{{define "create"}}perl tree.pl create {{.Arg}} {{.Pick "1 1000" "10 30500"}} <text{{end}}
{{- define "compile"}}perl tree.pl compile trees {{.Pick "1 1000" "10 30500"}} <text{{end}}
{{- define "read"}}perl tree.pl read trees {{.Pick "1 1000" "10 30500"}} <text{{end}}
{{- define "trees"}}rm -rf trees
mkdir trees
{{template "create" .With "trees"}} >/dev/null
{{end}}

{{- /* A job of fio. The argument is its directory and its name, that of the paper's tool. The options match that: files are not
allocated ahead of time, and reading starts with the page cache as it is. */ -}}
{{define "fio"}}fio --output-format=json --directory={{.Arg}} --group_reporting --fallocate=none --invalidate=0 --randseed=1{{end}}

{{- /* The file server load of dbench by so many clients.

The quick profile's load is the part of the whole one in two of its eleven directories. It flushes as often, in 1.3 % of its operations,
but a client has 1.2 MB of files instead of 24 MB, so that 128 clients fit in a small guest. A quick run has 16 processes at most, whose
clients take turns: dbench starts to count when every client has written, and 128 processes that wait for one disk take far longer to get
there. It lasts 2 s, the shortest that has a figure. When a client has not started by then, dbench reports 0 and the run is repeated with
twice the time, up to 64 s. The paper's profile has the whole load, dbench's own ten minutes and a process per client. */ -}}
{{define "load"}}{{if .Quick}}awk '
{{template "dbench.awk"}}' /usr/share/dbench/client.txt >load
{{else}}ln -sf /usr/share/dbench/client.txt load
{{end}}{{end}}
{{- define "dbench"}}{{template "scratch"}}
{{- if .Quick}}for limit in 2 4 8 16 32 64; do
  dbench -t $limit -c load -D scratch --clients-per-process={{div .Arg (min .Arg 16)}} {{min .Arg 16}} >scratch/output
  if ! grep -q '^Throughput 0 ' scratch/output; then break; fi
  rm -rf scratch/clients
done
cat scratch/output
{{else}}dbench -t 600 -c load -D scratch {{.Arg}}
{{end}}{{end}}

{{- /* A compiler of Java, and a class that calls a part of SciMark. Debian's package of the runtime has the compiler as a module,
without its command. */ -}}
{{define "javac"}}java -m jdk.compiler/com.sun.tools.javac.Main -cp{{end}}
{{- define "part"}}cat >Part.java <<'END'
{{template "Part.java" .}}END
{{template "javac"}} /usr/local/share/java/scimark-2.0.jar Part.java
{{end}}

{{- /* What Listings 5-8 of FitzGerald 2014 have in common. */ -}}
{{define "sysbench"}}--rand-seed=1 --validate=on --percentile=95{{end}}

{{- /* sysbench's memory test moves 1 GiB, or in the paper's profile its own 100 GiB, in blocks. Each thread has its own block. */ -}}
{{define "ram"}}{{$total := .Pick 1073741824 107374182400}}sysbench memory --threads={{.VCPUs}} --rand-seed=1 --events={{div $total .Arg}} --time=0 --memory-scope=local --memory-block-size={{.Arg}} --memory-total-size={{$total}}{{end}}

{{- /* A copy between two arrays, which together take at most half of the memory. */ -}}
{{define "mbw"}}mbw -t{{.Arg}} -n {{.Pick 5 10}} {{div (min (.Pick 33554432 1073741824) (max 1048576 (div .Memory 4))) 1048576}}
{{end}}

{{- /* A pass over the guest's memory, in blocks of about a quarter of that of level 0, as in Listing 7: the thesis has the same block at
every level (§2.4). sysbench 1.0 accepts only powers of two. Threads share the block, so that a pass fits in the memory. Table 3 says 10,000
transactions, but the total size in the listing ends the test after one pass, and so it does here. */ -}}
{{define "pass"}}{{$block := powerOfTwo (div .Whole (.Pick 80 4))}}{{$blocks := max 1 (div .Memory $block)}}sysbench memory --threads={{.VCPUs}} {{template "sysbench"}} --events={{$blocks}} --time=0 --memory-block-size={{$block}} --memory-total-size={{mul $blocks $block}} --memory-scope=global --memory-oper={{.Arg}} run
{{end}}

{{- /* The table of the database, and the end of a script that begins with mariadb.sh, during which MariaDB serves the directory db on the socket db/sock. The server has the sizes of the
thesis's MySQL 5.5: a buffer pool of 128 MiB, and fsync instead of direct I/O, so that file systems without direct I/O do the same work. It
does not use io_uring, because containers forbid it and guests do not. It has no system tables, because nobody logs in. The script signals
it until it stops, because a signal during its start is lost. */ -}}
{{define "table"}}sysbench oltp_read_write --db-driver=mysql --mysql-socket=db/sock --mysql-user=root --mysql-db=test --table-size={{.Pick 50000 1000000}} --threads={{.Arg}} --rand-seed=1{{end}}
{{- define "stop"}}trap - EXIT
stop
wait $server
{{end}}
