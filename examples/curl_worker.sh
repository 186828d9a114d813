#!/bin/sh
# A worker of curl and grep: it leases messages over HTTP, and completes each when its work has succeeded.
#
# $ sh curl_worker.sh
set -eu
url=http://127.0.0.1:8080
ask() { curl --silent --show-error --fail --user worker@localhost:secret --header 'Accept: application/json' "$@"; }
# The last field of this name in an answer.
field() { grep -o "\"$1\":\"[^\"]*\"" | tail -1 | cut -d '"' -f 4; }

lease=$(ask --data destinations=jobs --data prefetch=1 "$url/subscriptions" | field href)
# What this worker still holds goes to others at once.
trap 'ask --request DELETE "$url$lease" > /dev/null' EXIT
trap exit INT TERM
# The lease lasts a minute from each request on. An answer comes as soon as there is a message.
while answer=$(ask "$url$lease?wait=20"); do
    content=$(echo "$answer" | field content_href)
    test -n "$content" || continue
    # Here is the work. It has the queue's lock time; POST to the field `renew` restarts that.
    echo "working on $(ask "$url$content" | sed 's/.*"file": *"\([^"]*\)".*/\1/')"
    ask --request DELETE "$url$(echo "$answer" | field href)" > /dev/null
done
