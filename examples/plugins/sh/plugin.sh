#!/bin/sh
# A plugin in plain sh: how full a file system is. It takes lines apart by the
# order of their keys, which the bot keeps, and relies on the schema's pattern: the
# bot sends no other argument.
while IFS= read -r line; do
	case $line in
	'{"type":"init",'*)
		printf '%s\n' '{"type":"init","tools":[{"name":"disk_free","description":"Tells how full the file system at a path is.","parameters":{"type":"object","properties":{"path":{"type":"string","pattern":"^/[A-Za-z0-9/._-]*$","description":"An absolute path."}},"required":["path"],"additionalProperties":false}}]}'
		;;
	'{"type":"call","name":"disk_free",'*)
		id=$(printf '%s\n' "$line" | sed -n 's/^{"type":"call","name":"disk_free","call_id":"\([^"]*\)".*/\1/p')
		path=$(printf '%s\n' "$line" | sed -n 's/.*,"params":{"path":"\([^"]*\)"}.*/\1/p')
		error=false
		if ! text=$(df -Ph -- "$path" 2>&1); then error=true; fi
		# As a JSON string: no control characters, quotes and backslashes escaped.
		text=$(printf '%s' "$text" | sed 's/\\/\\\\/g; s/"/\\"/g' | awk '{printf "%s%s", (NR > 1 ? "\\n" : ""), $0}' | tr -d '\000-\037')
		printf '{"type":"result","call_id":"%s","content":[{"type":"text","text":"%s"}],"is_error":%s}\n' "$id" "$text" "$error"
		;;
	esac
done
