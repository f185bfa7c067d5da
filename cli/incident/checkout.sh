#!/bin/sh
# The checkout service of the demo: it logs every request at debug level and
# refuses orders while its log directory is over its quota.
dir=$1
logs=$dir/var/log/checkout
quota=2048
order=4711
while :; do
	if [ -e "$dir/run/reload" ]; then
		rm "$dir/run/reload"
		echo "info configuration read: $(head -n 1 "$dir/etc/checkout.conf")" >>"$logs/debug.log"
	fi
	used=$(du -sk "$logs" | cut -f1)
	if [ "$used" -ge "$quota" ]; then
		echo "unhealthy: cannot write order $order: log directory is over its quota of $quota KiB ($used KiB used)" >"$dir/run/health.new"
	else
		order=$((order + 1))
		echo "info order $order accepted" >>"$logs/debug.log"
		echo "healthy: last order $order, $used of $quota KiB used" >"$dir/run/health.new"
	fi
	mv "$dir/run/health.new" "$dir/run/health"
	sleep 1
done
