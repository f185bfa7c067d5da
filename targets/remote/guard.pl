# The part of lock.pl that answers what the filter reports. It is compiled when there is
# something to answer, since most programs that only read are never refused anything. It is
# compiled as the body of a sub, whose own subs share no variables of it.
our %name = map { reverse split /=/ } split /,/, $calls;
our %sink = map { $_, 1 } split /,/, $sinks;
our %socket = map { $_, 1 } split /,/, $sockets;
our (%seen, $forks, $bound, $two);

# What a name may hold in a control line.
sub plain { join "", map { my $c = ord; $c < 32 || $c == 37 || $c == 127 ? sprintf("%%%02X", $c) : $_ } split //, substr $_[0], 0, 300 }

sub hit {
  my ($kind, $what) = @_;
  control("h", $kind, plain($what)) if !$seen{"$kind $what"}++ && keys %seen <= 16;
}

# The processes that there are: number, parent and group of each.
sub processes {
  opendir(my $d, "/proc") or return;
  my @all;
  for my $p (grep { !/[^0-9]/ } readdir $d) {
    my ($s) = lines("/proc/$p/stat") or next;
    my @f = split / /, substr $s, rindex($s, ")") + 2;
    push @all, [$p, $f[1], $f[2]];
  }
  return @all;
}

# Whether a process or thread comes from this one.
sub ours {
  my $p = $_[0];
  for (1 .. 1000) {
    my ($parent) = map { /^PPid:[^0-9]*([0-9]+)/ ? $1 : () } lines("/proc/$p/status");
    return $parent if !$parent;
    return 1 if $parent == $$;
    $p = $parent;
  }
}

sub answer {
  my ($id, $value, $errno, $flags) = @_;
  my $a = pack "QqlL", $id, $value, -$errno, $flags;
  syscall($ioctl, $listener, 0xc0182101, $a);
}

sub text {
  my ($pid, $at) = @_;
  my $out = "";
  open(my $m, "<:unix", "/proc/$pid/mem") or return;
  while (length $out < 4096) {
    sysseek($m, $at + length $out, 0) or return;
    sysread($m, my $b, 4096 - ($at + length $out) % 4096) or return;
    my $end = index $b, chr 0;
    return $out . substr $b, 0, $end if $end >= 0;
    $out .= $b;
  }
  return;
}

# A part of the memory of a process: all of it or nothing.
sub bytes {
  my ($pid, $at, $len) = @_;
  sysopen(my $m, "/proc/$pid/mem", 0) or return "";
  sysseek($m, $at, 0) or return "";
  my $part;
  return sysread($m, $part, $len) == $len ? $part : "";
}

# Connects a copy of a socket: it waits where the process would, and not longer than it does.
sub wired {
  my ($fd, $address, $valid) = @_;
  my $flags = syscall($fcntl, $fd, 3, 0);
  syscall($fcntl, $fd, 4, $flags | 0x800);
  my $errno;
  do {
    # A Unix socket whose queue is full is tried again.
    select undef, undef, undef, 0.01 if $errno;
    $errno = syscall($connect, $fd, $address, length $address) < 0 ? $! + 0 : 0;
  } while $errno == 11 && !($flags & 0x800) && $valid->();
  $errno = 4 if $errno == 11 && !($flags & 0x800);
  if ($errno == 115 && !($flags & 0x800)) {
    $errno = 4;
    while ($valid->()) {
      my ($p, $wait, $e, $len) = (pack("lss", $fd, 4, 0), pack("QQ", 0, 100000000), pack("x4"), pack("L", 4));
      next if syscall($ppoll, $p, 1, $wait, 0, 0) <= 0;
      syscall($getsockopt, $fd, 1, 4, $e, $len);
      $errno = unpack "L", $e;
      last;
    }
  }
  syscall($fcntl, $fd, 4, $flags);
  return $errno;
}

# The service that systemd would start for a connection: nothing if it runs, or systemd does not listen there.
sub starts {
  my ($socket) = $_[0] =~ m{^(?:/var)?(.*)};
  return "" if !-e "/run/systemd/system";
  for my $unit (map { my ($d, $h) = "/$_/systemd/system"; opendir($h, $d) ? map { "$d/$_" } readdir $h : () } qw(etc run usr/lib lib)) {
    my ($service, $listens) = $unit =~ m{([^/]*)[.]socket$} ? ("$1.service", 0) : next;
    for (lines($unit)) {
      s{%t/}{/run/};
      $listens = 1 if m{^[ ]*Listen(?:Stream|SequentialPacket)[ ]*=[ ]*(?:/var)?(.*[^ ])[ ]*$} && $1 eq $socket;
      $service = $1 if /^[ ]*Service[ ]*=[ ]*(.*[^ ])[ ]*$/;
    }
    next if !$listens;
    return (grep { -e "/sys/fs/cgroup$_/system.slice/$service" } "", "/systemd", "/unified") ? "" : $service;
  }
  return "";
}

sub absolute {
  my ($pid, $at, $p) = @_;
  return $p if $p =~ m{^/};
  return readlink("/proc/$pid/" . ($at == -100 ? "cwd" : "fd/$at")) . "/$p";
}

# The file that a call changes: where its directory and its path are among the arguments.
our %file = map { $_, [0, 1] } qw(unlinkat mkdirat mknodat fchmodat fchmodat2 fchownat utimensat futimesat renameat renameat2);
$file{$_} = [-1, 0] for qw(truncate unlink rename mkdir rmdir mknod chmod chown lchown utime utimes setxattr lsetxattr removexattr lremovexattr creat);
$file{$_} = [-1, 1] for qw(link symlink);
$file{symlinkat} = [1, 2];
$file{linkat} = [2, 3];
$file{$_} = [0, -1] for qw(fchmod fchown fsetxattr fremovexattr);

sub about {
  my ($pid, $call, @args) = @_;
  my ($at, $path) = @{$file{$call} || return ""};
  return readlink "/proc/$pid/fd/" . int32($args[0]) if $path < 0;
  my $p = text($pid, $args[$path]);
  return defined $p ? absolute($pid, $at < 0 ? -100 : int32($args[$at]), $p) : "";
}

sub int32 { unpack "l", pack "L", $_[0] & 0xffffffff }

# A descriptor of a process, for the guard; -1 where that is not allowed.
sub descriptor {
  my ($pid, $fd) = @_;
  my ($leader) = map { /^Tgid:[^0-9]*([0-9]+)/ ? 0 + $1 : () } lines("/proc/$pid/status");
  my $p = syscall($pidfdopen, $leader || $pid, 0);
  return -1 if $p < 0;
  my $got = syscall($pidfdget, $p, $fd, 0);
  syscall($close, $p);
  return $got;
}

# The family of a socket of a process: 0 where it is not known.
sub family {
  my $fd = descriptor(@_);
  return (0, -1) if $fd < 0;
  my ($f, $len) = (pack("x4"), pack("L", 4));
  return (syscall($getsockopt, $fd, 1, 39, $f, $len) == 0 ? unpack "L", $f : 0, $fd);
}

# Answers one call.
sub decide {
  my $n = pack "x80";
  syscall($ioctl, $listener, 0xc0502100, $n) == 0 or return;
  my ($id, $pid, $f, $nr, $arch, $ip, @args) = unpack "QLLlLQQ6", $n;
  my $call = $name{$nr};
  my $valid = sub { my $i = pack "Q", $id; syscall($ioctl, $listener, 0x40082102, $i) == 0 };
  my $goon = sub { $valid->() ? answer($id, 0, 0, 1) : answer($id, 0, 1, 0) };
  my $refuse = sub { my ($errno, $kind, $what) = @_; hit($kind, $what) if $kind; answer($id, 0, $errno, 0) };
  my $insert = sub {
    my ($give, $flags, $into, $how) = @_;
    my $in = pack "QLLLL", $id, $how, $give, $into, $flags & 0x80000;
    return syscall($ioctl, $listener, 0x40182103, $in);
  };

  if ($call =~ /^(open|openat|creat)$/) {
    my ($at, $arg, $flags) = (-100, $args[0], int32($args[1]));
    ($at, $arg, $flags) = (int32($args[0]), $args[1], int32($args[2])) if $call eq "openat";
    $flags = 0x241 if $call eq "creat";
    my $p = text($pid, $arg);
    # What cannot be looked into, Landlock refuses.
    return $landlocked ? $goon->() : $refuse->(30, "write", "") if !defined $p;
    return $refuse->(6) if $p eq "/dev/tty";
    if ($files) {
      my $whole = absolute($pid, $at, $p);
      hit("list", "") if !($flags & 0x243) && $whole =~ m{^/proc/?$};
      return $goon->() if !($flags & 0x243) || $whole !~ m{^/(?:proc|sys|dev)/(?!shm/)};
    }
    my ($give, $got);
    my $stream = $p eq "/dev/stdout" ? 1 : $p eq "/dev/stderr" ? 2 : $p =~ m{^(?:/dev/fd|/proc/self/fd)/([0-9]+)$} ? $1 : undef;
    if ($sink{$p}) {
      sysopen($give, $p, $flags & 0xc03 | 0x100);
    } elsif (defined $stream) {
      my ($had) = map { /^flags:[^0-9]*([0-7]+)/ ? oct $1 : () } lines("/proc/$pid/fdinfo/$stream");
      my $link = "/proc/$pid/fd/$stream";
      my $held = syscall($openat, -100, $link, 0x280000, 0);
      my $what = readlink "/proc/self/fd/$held";
      return $refuse->(6) if $what =~ /^socket:/;
      # Without waiting for a reader. What it leads to is opened, whatever the name says by now.
      sysopen($give, "/proc/self/fd/$held", 0x901) if $had & 3 && ($what =~ /^pipe:/ || $sink{$what});
      fcntl($give, 4, $flags & 0xc00) if $give;
      syscall($close, $held) if $held >= 0;
    }
    my $into = $give ? $insert->(fileno $give, $flags, 0, 0) : -1;
    return $refuse->(30, "write", absolute($pid, $at, $p)) if $into < 0;
    return answer($id, $into, 0, 0);
  }
  if ($call =~ /^(kill|tkill|tgkill)$/) {
    my $to = int32($args[0]);
    my $sig = int32($args[$call eq "tgkill" ? 2 : 1]);
    if ($call eq "kill" && ($to == 0 || $to < -1)) {
      my $group = $to ? -$to : getpgrp(0);
      if ($to == 0) {
        my ($s) = lines("/proc/$pid/stat");
        $group = (split / /, substr $s, rindex($s, ")") + 2)[2];
      }
      my @members = grep { ours($_) } map { $_->[2] == $group ? $_->[0] : () } processes();
      # Others may be in that group, too.
      if (@members) {
        answer($id, 0, 0, 0);
        kill $sig, @members;
        return;
      }
    } elsif ($to > 0 && ours($to)) {
      return $goon->();
    }
    my ($comm) = lines("/proc/" . abs($to) . "/comm");
    chomp $comm;
    return $refuse->(1, "signal", $comm eq "" ? "" : "$comm (" . abs($to) . ")");
  }
  # A bound for what only multiplies, since root has no other.
  if ($call =~ /^(fork|vfork|clone)$/ && ($call ne "clone" || !($args[0] & 0x7e020000))) {
    return ++$forks > 4096 ? $refuse->(11) : $goon->();
  }
  if ($call eq "pidfd_send_signal") {
    my ($to) = map { /^Pid:[^0-9]*([0-9]+)/ ? $1 : () } lines("/proc/$pid/fdinfo/" . int32($args[0]));
    if ($to && ($args[1] == 0 || ours($to))) {
      # The descriptor may be of another one by now.
      answer($id, 0, 0, 0);
      kill 0 + $args[1], $to;
      return;
    }
    return $refuse->(1, "signal", "");
  }
  return $refuse->(13, "connect", "") if $call =~ /^(socket|listen)$/;
  # A guard that cannot look at sockets lets these go on: bind if there is no Unix socket, and none can be made then.
  if ($call eq "socketpair") {
    return $refuse->(13) if $blind && $bound;
    $two = 1;
    return $goon->();
  }
  if ($call eq "bind" && $blind && $inet && !$two) {
    $bound = 1;
    return $goon->();
  }
  if ($call =~ /^(bind|connect)$/) {
    # A Unix socket can be one of a pair only, which is connected.
    return $goon->() if $call eq "connect" && $inet && !%socket;
    # The guard makes the call itself, with the address that it has read and the socket
    # that it has looked at, so that another one cannot be put in between.
    my ($f, $fd) = family($pid, int32($args[0]));
    my $address = bytes($pid, $args[1], $args[2] > 128 ? 128 : $args[2]);
    my ($errno, @hit) = (13, $call eq "bind" ? "change" : "connect", "");
    # It does not stand in for who joins a group of the kernel's sockets.
    my $joins = $f == 16 && (length $address < 12 || unpack "x8L", $address);
    if ($inet && ($f == 2 || $f == 10 || $f == 16) && length $address && !$joins && $valid->()) {
      ($errno, @hit) = $call eq "bind" ? syscall($bind, $fd, $address, length $address) < 0 ? $! + 0 : 0 : wired($fd, $address, $valid);
    } elsif ($f == 1 && $call eq "connect") {
      my ($to) = split chr(0), substr "$address..", 2, length($address) - 2;
      ($errno, @hit) = (111, "connect", $to);
      my $start = $socket{$to} ? starts($to) : "";
      if ($start ne "") {
        @hit = ("start", $start);
      } elsif ($socket{$to} && $valid->()) {
        ($errno, @hit) = wired($fd, pack("Sa108", 1, $to), $valid);
      }
      @hit = () if $to eq "" || $to =~ m{^(?:/var)?/run/(?:nscd/socket|systemd/resolve/io.systemd.Resolve)$};
    }
    syscall($close, $fd) if $fd >= 0;
    return $refuse->($errno, @hit);
  }
  return $refuse->(1, "device", readlink "/proc/$pid/fd/" . int32($args[0])) if $call eq "ioctl";
  return $refuse->($file{$call} ? 30 : 1, "change", about($pid, $call, @args));
}

# Ends all that comes from this process.
sub finish {
  my %tree = ($$, 1);
  my @all = processes();
  for (1 .. @all) {
    my @more = grep { $tree{$_->[1]} && !$tree{$_->[0]} } @all or last;
    $tree{$_->[0]} = 1 for @more;
  }
  delete $tree{$$};
  kill 9, keys %tree;
}
1;
