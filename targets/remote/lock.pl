# Runs a program under a lock, and answers what its filter reports: what
# targets/lock does in Go, for a system that has perl alone. It uses no module.
# The one who starts it explains the arguments (remote/lock.go).
#
# A control line on standard error says that the lock is on (l), that it cannot be (n),
# or what the program was refused (h). Comments and indentation are not sent. It has few
# quotes and backslashes, since each costs several bytes in the line for a login shell.
#
# Without a program it waits for a job on its input: the length, and then parts that end with a zero
# byte. They are directory, its identity, limit and grace in seconds, whether errors go to the output,
# number of variables, the variables, number of arguments that replace those before the program, these
# arguments, and the program.
our ($token, $guard) = splice @ARGV, 0, 2;
our ($listener, $landlocked, $limit, $grace, $merged, $env) = (-1, 0, 0, 1, 0);

sub control { syswrite STDERR, join(" ", $token, @_) . chr 10 }

sub broken { control("n", $_[0]); exit 125 }

our ($code, $calls, $own, $rules, $sinks, $readable, $keep, $memory, $processes, $seconds, $inet, $sockets, $files, $system) = splice @ARGV, 0, 14;
our ($prctl, $capget, $capset, $create, $addrule, $restrict, $prlimit, $seccomp, $sendmsg, $recvmsg, $ppoll, $ioctl, $openat, $close,
  $pidfdopen, $pidfdget, $getsockopt, $connect, $bind, $fcntl, $closerange) = map { 0 + $_ } split /,/, $own;

# Compiles guard.pl. What is asked of a guard that cannot be compiled fails when this ends.
sub guard {
  return if !defined $guard;
  ref $guard or $guard = eval "sub { $guard }" or exit 125;
  $guard->();
  undef $guard;
}

# Leaves this process the capabilities of a mask that it has.
sub leave {
  my $keep = $_[0];
  my ($head, $data) = (pack("Ll", 0x20080522, 0), pack("x24"));
  syscall($capget, $head, $data) == 0 or broken("capget: $!");
  my @c = unpack "L6", $data;
  $_ &= $keep & 0xffffffff for @c[0, 1];
  $_ &= $keep >> 32 for @c[3, 4];
  @c[2, 5] = (0, 0);
  $data = pack "L6", @c;
  syscall($capset, $head, $data) == 0 or broken("capset: $!");
}

sub lines {
  open(my $f, "<", $_[0]) or return;
  return <$f>;
}

# The bound of memory: a quarter of what is free on the machine or left of the container.
sub share {
  my ($most) = sort { $a <=> $b } $memory * 4, map { /^MemAvailable:[^0-9]*([0-9]+)/ ? $1 * 1024 : () } lines("/proc/meminfo");
  for (["memory.max", "memory.current", "memory.stat"], ["memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"]) {
    my ($all, $used, @stat) = map { lines("/sys/fs/cgroup/$_") } @$_;
    my ($cached) = sort { $b <=> $a } 0, map { /^(?:total_)?inactive_file ([0-9]+)/ } @stat; # the kernel gives that back
    $most = $all - $used + $cached if $used && $all =~ /^[0-9]/ && $all - $used + $cached < $most;
  }
  return $most < 1073741824 ? 268435456 : int($most / 4);
}

# What is put on the program before it begins. It returns what the kernel reports to.
sub hold {
  syscall($prctl, 38, 1, 0, 0, 0) == 0 or broken("no_new_privs: $!");
  leave($keep);
  if (syscall($closerange, 3, 0xffffffff, 4) != 0) { # not for the program; Linux before 5.11 cannot
    opendir(my $d, "/proc/self/fd");
    syscall($fcntl, 0 + $_, 2, 1) for grep { /^[0-9]+$/ && $_ > 2 } readdir $d;
  }
  if (open my $o, ">", "/proc/self/oom_score_adj") { # it ends before others when memory is short
    syswrite $o, 1000;
  }
  syscall($prctl, 1, 9, 0, 0, 0);
  getppid() == $_[0] or exit 125;

  my $version = syscall($create, 0, 0, 1);
  my @r = split /;/, $rules;
  broken("without Landlock, root's reads can't be limited to system files") if $system && !$> && ($version < 1 || !@r);
  if ($version > 0 && @r) {
    my ($fs, $net, $scoped, $read, $write, $below) = map { 0 + $_ } split /,/, $r[$version > @r ? -1 : $version - 1];
    my $attr = pack "Q3", $fs, $net, $scoped;
    my $set = syscall($create, $attr, 24, 0);
    $set >= 0 or broken("landlock_create_ruleset: $!");
    my %access = map { $_, $read | $write } split /,/, $sinks;
    $access{"/"} = $below if $below;
    if ($read) {
      opendir(my $d, "/");
      my @top = map { "/$_" } grep { !/^dev$|^[.]/ } readdir $d;
      $access{$_} |= $read for map { $_ eq "/" ? @top : $_ } split /,/, $readable;
    }
    for my $p (keys %access) {
      my $path = $p;
      my $fd = syscall($openat, -100, $path, 0x280000, 0);
      next if $fd < 0;
      my $rule = pack "Ql", $access{$p}, $fd;
      syscall($addrule, $set, 1, $rule, 0) == 0 or broken("landlock_add_rule for $p: $!");
      syscall($close, $fd);
    }
    syscall($restrict, $set, 0, 0) == 0 or broken("landlock_restrict_self: $!");
    syscall($close, $set);
  } else {
    $version = 0;
  }

  my %most = (4, 1, 2, share(), 0, $seconds);
  if ($>) {
    $most{6} = $processes;
    opendir(my $d, "/proc");
    for (grep { !/[^0-9]/ } readdir $d) {
      my @s = stat "/proc/$_/task";
      $most{6} += $s[3] - 2 if @s && $s[4] == $>;
    }
  }
  for my $which (keys %most) {
    my $old = pack "x16";
    next if syscall($prlimit, 0, 0 + $which, 0, $old) != 0 || (unpack "Q2", $old)[1] < $most{$which} + ($which ? 0 : 5);
    my $new = pack "Q2", $most{$which}, $most{$which} + ($which ? 0 : 5); # of time: SIGXCPU first, which says why
    syscall($prlimit, 0, 0 + $which, $new, 0);
  }

  my $filter = pack "H*", $code;
  my $program = pack "Sx6P", length($filter) / 8, $filter;
  my $l = syscall($seccomp, 1, 8, $program);
  $l >= 0 or broken("seccomp: $!");
  return ($l, $version);
}

# Takes what a job says.
sub take {
  ((my $dir, my $id), $limit, $grace, $merged, $env, @ARGV) = split chr 0, $_[0], -1;
  pop @ARGV;
  $env = [splice @ARGV, 0, $env];
  my $n = shift @ARGV;
  ($code, $calls, $own, $rules, $sinks, $readable, $keep, $memory, $processes, $seconds, $inet, $sockets, $files, $system) = splice @ARGV, 0, $n if $n;
  $limit += time + 1 if $limit;
  return ($dir, $id);
}

# Enters the directory of a job, if it is that one.
sub enter {
  my ($dir, $id) = @_;
  my @s = chdir($dir) ? stat(".") : ();
  return if @s && ($id eq "" || $id eq "$s[0]:$s[1]");
  control("x", @s ? "changed" : !-e $dir ? "missing" : -d _ ? "denied" : "notdir");
  exit 125;
}

# A message with a descriptor.
sub message {
  my ($nr, $socket, undef, undef) = @_;
  my $part = pack "PQ", $_[2], 1;
  my $head = pack "QQPQPQQ", 0, 0, $part, 1, $_[3], 24, 0;
  return syscall($nr, fileno $socket, $head, $nr == $sendmsg ? 0 : 0x40000000);
}

socketpair(my $mine, my $its, 1, 1, 0) or broken("socketpair: $!");
syscall($prctl, 36, 1, 0, 0, 0); # what loses its parent comes here
my $parent = $$;
my $waits = !@ARGV;
$waits and $guard = eval "sub { $guard }" || exit 125;
my $child = fork; # before there is a job, since it takes a while
defined $child or broken("fork: $!");
if (!$child) {
  close $mine;
  if ($waits) {
    my ($n, $job) = scalar <STDIN>;
    exit if !defined $n;
    read(STDIN, $job, $n) == $n or exit 125;
    syswrite $its, pack("L", $n) . $job;
    enter(take($job));
    open STDIN, "<", "/dev/null";
  }
  my ($l, $version) = hold($parent);
  my ($byte, $with) = (chr $version, pack("QllLL", 20, 1, 1, $l, 0));
  message($sendmsg, $its, $byte, $with) == 1 or broken("sendmsg: $!");
  open STDERR, ">&STDOUT" if $merged;
  %ENV = map { split /=/, $_, 2 } @$env if $env;
  exec { $ARGV[0] } @ARGV;
  my $why = $! + 0;
  syswrite STDERR, "$ARGV[0]: $!" . chr 10;
  exit($why == 2 ? 127 : 126);
}
close $its;
$SIG{$_} = "IGNORE" for qw(TERM INT HUP QUIT PIPE);
if ($waits) {
  my ($n, $job) = ("", "");
  sysread($mine, $n, 4) == 4 or exit;
  $n = unpack "L", $n;
  sysread($mine, $job, $n - length $job, length $job) or exit 125 while length $job < $n;
  take($job);
}
vec(my $byte, 0, 8) = 0; # buffers of their own
vec(my $with, 23, 8) = 0;
if (message($recvmsg, $mine, $byte, $with) != 1) {
  waitpid $child, 0;
  exit 125;
}
close $mine;
$listener = (unpack "QllL", $with)[3];
$landlocked = ord $byte;
my $ended = syscall($pidfdopen, $child, 0);
my $copy = syscall($pidfdget, $ended, 2, 0); # an engine may forbid that
syscall($close, $copy) if $copy >= 0;
our $blind = $copy < 0;
control("l", $landlocked, $blind ? 0 : 1);
leave($keep | 1 << 5) if !$files; # what it does for the program it does with what the program may
# The guard does not hold the program's own streams.
open STDIN, "<", "/dev/null";
open STDOUT, ">", "/dev/null";

my ($status, $left);
while (1) {
  my $p = pack "lsslss", $listener, 1, 0, defined $status ? -1 : $ended, 1, 0;
  my $wait = pack "QQ", 0, defined $status || $ended < 0 ? 1000000 : 200000000;
  my $r = syscall($ppoll, $p, 2, $wait, 0, 0);
  my $seen = (unpack "lsslss", $p)[2];
  if ($r > 0 && $seen & 1) {
    guard();
    decide();
  }
  $listener = -1 if $r > 0 && $seen && !($seen & 1);
  my $dead;
  while (($dead = waitpid -1, 1) > 0) {
    $status = $? if $dead == $child;
  }
  if ($limit && time >= $limit) { # nobody else has ended the group
    kill $grace ? "TERM" : "KILL", -getpgrp(0);
    ($limit, $grace) = ($limit + $grace, 0);
  }
  next if !defined $status;
  last if $dead < 0 || ++$left > 1000;
  next if $left < 5;
  # Nothing of it outlives the program.
  guard();
  finish();
}
exit($status & 127 ? 128 + ($status & 127) : $status >> 8);
