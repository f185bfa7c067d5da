# What the programs of this package have in common: it is the beginning of each. It uses no module, not even
# strict, since who waits for a command waits for it.
#
# A word that says how far a program is has an empty line before it. They print lines: t (the clocks, for after.pl),
# q (a process), and what a machine has besides files: u (a unit), p (a socket that listens), m (a mount), k (a
# module of the kernel), s (a setting of it), r (a route), f (the firewall), d (a directory with its names), each a
# name and, behind a tab, a value that is another one after a change. Behind the line "files" are rows with zero bytes at their ends: "w" (its
# content), "a" (its attributes), "l" (those of a file with several names, or one of these), "d" (it is gone) or
# "n" (its names, of a directory), a space, and the path;
# "o", if something was missed. An empty row and "z" are the last.
$| = 1;
my (@named, $overlay);
sub none {
  names(@named); # a recording needs no comparison
  print "\nnone\n";
  exit;
}

# fanotify_init, fanotify_mark, open_by_handle_at, statfs, openat, read, close, statx, clock_gettime
# of x86-64 and arm64, which ELF knows by numbers
my %calls = (62 => [300, 301, 304, 137, 257, 0, 3, 332, 228], 183 => [262, 263, 265, 43, 56, 63, 57, 291, 113]);
my ($self, $elf);
open($self, "<:unix", "/proc/self/exe") && sysread($self, $elf, 20) == 20 or none();
my $calls = $calls{unpack "x18 S", $elf} || none();
my ($init, $mark, $byhandle, $statfs, $openat, $read, $close, $statx, $clock) = @$calls;

# The clock of the files' times in seconds and nanoseconds, and that of the processes' in hundredths of a second.
sub clocks {
  my ($now, $up) = ("\0" x 16, "\0" x 16);
  syscall $clock, 5, $now;
  syscall $clock, 7, $up;
  my ($whole, $part) = unpack "qq", $up;
  return (unpack("qq", $now), $whole * 100 + int($part / 1e7));
}

sub lines {
  open(my $f, "<", $_[0]) or return;
  return <$f>;
}

# When a process began, in ticks since the machine did.
sub began {
  my $stat = join "", lines("/proc/$_[0]/stat") or return;
  my @f = split / /, substr $stat, rindex($stat, ")") + 2;
  my ($name) = $stat =~ /\((.*)\)/s;
  $name =~ tr/\n\0/??/; # a program chooses it, and it stays in its row
  return ($f[19], $f[1], $f[0], $name);
}

# The addresses of a family that something listens on for TCP (sock_diag(7)): /proc/net/tcp costs more.
sub listening {
  my ($family) = @_;
  my @out;
  socket(my $diag, 16, 2, 4) or return;
  send $diag, pack("LSSLL CCxxL x48", 72, 20, 0x301, 0, 0, $family, 6, 1 << 10), 0 or return;
  while (defined recv $diag, my $b, 65536, 0) {
    while (length $b >= 16) {
      my ($len, $type) = unpack "LS", $b;
      return @out if $type != 20 || $len < 16; # all, or an error
      my ($port, $host) = unpack "x20 n x2 H" . ($family == 2 ? 8 : 32), $b;
      push @out, "p $host $port\n";
      $b = substr $b, $len + 3 & ~3;
    }
  }
  return @out;
}

# What people set of the kernel: what it counts itself and what is secret is left out.
sub settings {
  my @out;
  for my $dir (qw(kernel vm fs net/core net/ipv4 net/ipv4/conf/all net/ipv6/conf/all)) {
    opendir(my $d, "/proc/sys/$dir") or next;
    for my $name (readdir $d) {
      next if $name =~ /-(nr|state)$|last_pid|_count$|sample_rate|secret|key|refresh/;
      my ($f, $is);
      sysopen($f, "/proc/sys/$dir/$name", 0) && sysread($f, $is, 100) or next;
      $is =~ s/\s+/ /g;
      push @out, "s $dir/$name\t$is\n";
    }
  }
  return @out;
}

sub routes {
  my $ip = sub { join ".", unpack "C4", pack "L", hex $_[0] };
  my @out;
  for (lines("/proc/net/route")) {
    my ($dev, $to, $by, $mask) = (split)[0, 1, 2, 7];
    next if $dev =~ /^(Iface$|veth|cali|lxc)/; # those of containers come and go
    push @out, "r " . $ip->($to) . "/" . unpack("%32b*", pack "L", hex $mask) . (hex $by ? " via " . $ip->($by) : "") . " dev $dev\n";
  }
  for (lines("/proc/net/ipv6_route")) {
    my ($to, $len, $by, $flags, $dev) = (split)[0, 1, 4, 8, 9];
    next if $dev =~ /^(lo$|veth|cali|lxc)/ || $to =~ /^ff/ || hex($flags) & 0x81000000; # local and learned ones
    push @out, "r " . join(":", unpack "(A4)8", $to) . "/" . hex($len) . ($by =~ /[^0]/ ? " via " . join(":", unpack "(A4)8", $by) : "") . " dev $dev\n";
  }
  return @out;
}

# How often the rules of the firewall were changed (linux/netfilter/nf_tables.h), which the kernel tells root.
sub firewall {
  my ($rules, $b);
  -d "/sys/module/nf_tables" && socket($rules, 16, 3, 12) && send($rules, pack("LSSLLL", 20, 0xa10, 1, 1, 0, 0), 0) or return;
  defined recv($rules, $b, 4096, 0) && length $b >= 28 && unpack("x4 S", $b) == 0xa0f or return;
  return "f rules\t" . unpack("x24 H8", $b) . "\n";
}

sub look {
  my @out;
  my ($own) = map { m{^\d+:(?:name=systemd)?:(.+)/init\.scope$} ? $1 : () } lines("/proc/1/cgroup");
  for my $dir (map { my $at = $_; map { "$_$at/system.slice" } "/sys/fs/cgroup", "/sys/fs/cgroup/systemd" } "", $own // ()) {
    opendir(my $d, $dir) or next;
    push @out, map { "u $_\t" . ((lstat "$dir/$_")[1] // "") . "\n" } grep { /\.service$/ && !/^countersign-undo-/ } readdir $d;
  }
  push @out, listening(2), listening(10), settings(), routes();
  push @out, map { "m " . join("\t", (split / /)[4, 5]) . "\n" } lines("/proc/self/mountinfo");
  push @out, map { /^([^ ]+)/ ? "k $1\n" : () } lines("/proc/modules");
  print @out;
}

# Directories without the links in their names, as far as they may be entered, each once.
sub real {
  my %had;
  my @real = grep { !$had{$_}++ } map { chdir($_) && readlink("/proc/self/cwd") || $_ } @_;
  chdir "/";
  return @real;
}

# What is in directories: ".", with which directory it is, and each name with its file's number, size and time, between
# slashes. Nobody waits for very many, and a name of two lines has no row.
sub names {
  my $most = 2000;
  for my $dir (real(@_)) {
    opendir(my $d, $dir) or next;
    my ($on, $own) = lstat "$dir/." or next; # it may be listed and not entered
    my @names = grep { !/^\.\.?$/ } readdir $d;
    next if ($most -= @names) < 0 || grep { /[\t\n]/ } $dir, @names;
    print "d $dir\t/./$on:$own/", map({ my ($number, $size, $time) = (lstat "$dir/$_")[1, 7, 9]; $number ? "$_/$number" . (-d _ ? "" : ".$size.$time") . "/" : () } @names), "\n";
  }
}

# What happened to a name, as far as it is there now; undef if it is gone.
sub newer {
  my ($path, $sec, $nsec) = @_;
  my @whole = lstat $path or return; # whole seconds, which costs less
  return (-d _, "") if $whole[10] < $sec;
  my $st = "\0" x 256;
  return if syscall($statx, -100, $path, 0x100, 0xfff, $st) < 0;
  my ($mode, $bsec, $bnsec, $csec, $cnsec, $msec, $mnsec) = unpack 'x28 S x50 (q L x4)3', $st; # made, changed, written
  my $since = sub { $_[0] > $sec || $_[0] == $sec && $_[1] >= $nsec };
  my $dir = ($mode & 0170000) == 0040000;
  return ($dir, "") if !$since->($csec, $cnsec);
  return ($dir, "w") if !$overlay && $since->($bsec, $bnsec); # it copies files that are old
  return ($dir, $dir || $whole[3] < 2 ? "a" : "l") if !$since->($msec, $mnsec);
  return ($dir, $dir && !$since->($bsec, $bnsec) ? "n" : "w");
}
