/~dmtmp\\(ACCESS|WORD)["\\]/ || /\\(clients|client1|~dmtmp)"/ { if ($1 == "NTCreateX") kept[$5] = 1; print; next }
$1 == "NTCreateX" { delete kept[$5] }
$1 ~ /^(Close|Flush|ReadX|WriteX|LockX|UnlockX|QUERY_FILE_INFORMATION|SET_FILE_INFORMATION)$/ && $2 in kept
