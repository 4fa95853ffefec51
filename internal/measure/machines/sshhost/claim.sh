set -e
new=${1%/*}/.${1##*/}
mkdir "$new"
exec 9<"$new"
flock 9
mv "$new" "$1"
echo held
exec cat >/dev/null
