# Records what a command does to files and which processes it leaves, until its input ends. A line of its input
# says whose changes count: "pid" and a number; or "mark" and a word, for the process that is started next with
# the word among its arguments and writes a file of that name. At the end it prints "end", and what look.pl says.
#
# It is passive: fanotify tells who changed which name, and the kernel's process events tell who comes from whom
# (fanotify(7), linux/cn_proc.h). Nothing waits for it, so a command that is recorded is as it is without.

my (%ours, %left, %files, @order, @later, %queued, $word, $announced, $missed, $seen);
my $most = 5000;            # names
my $most_processes = 20000; # and what is held of others until the command is found

# What happened to processes and to files since the command was announced by a word: its own process is found
# by what it does, and that may be known only when it is over.
my (@held, @unknown);

# Takes what happened to a process.
sub process {
  my ($what, @id) = @_;
  if ($what == 1) {
    return if !$ours{$id[1]};
    $missed = 1 if keys %ours >= $most_processes;
    $ours{$id[3]} = $left{$id[3]} = 1 if keys %ours < $most_processes;
  } elsif ($what == 0x80000000) {
    delete $left{$id[1]} if $id[0] == $id[1];
  }
}

# The command is this process.
sub found {
  $seen = $ours{$_[0]} = 1;
  undef $word;
  process(@$_) for @held;
  $ours{$_->[1]} and file($_->[0], $_->[2]) for @unknown;
  @held = @unknown = ();
}

# What happened to processes, as far as the kernel has told.
sub processes {
  my @new;
  while (@new < $most_processes) {
    my $b;
    if (!defined recv $events, $b, 8192, 0x40) {
      last if $! != 105; # the kernel dropped some
      $missed = 1;
      next;
    }
    push @new, [unpack "x36 L x12 L4", $b];
  }
  return @new;
}

# What happened to files, likewise.
sub names {
  my @new;
  while (@new < $most) {
    my $b = "\0" x 65536;
    my $n = syscall $read, $notices, $b, 65536;
    last if $n <= 0;
    for (my $i = 0; $i < $n;) {
      my ($len, $head, $mask, $pid) = unpack "L x2 S Q x4 l", substr $b, $i, 24;
      $missed = 1 if $mask & 0x4000;
      push @new, [$mask, $pid, substr $b, $i + $head, $len - $head];
      $i += $len;
    }
  }
  return @new;
}

# Reads its input, and returns whether that was the end.
sub input {
  my $r = "";
  vec($r, 0, 1) = 1;
  return 0 if select($r, undef, undef, 0) < 1;
  sysread STDIN, my $lines, 4096 or return 1;
  for (split /\n/, $lines) {
    my ($kind, $what) = split / /, $_, 2;
    $kind eq "pid" ? $seen = $ours{$what} = 1 : ($word = $announced = $what);
  }
  return 0;
}

# The directory of a handle.
sub directory {
  my ($root, $bytes, $type, $info) = @_;
  my $at = syscall $openat, -100, $root, 0x90000, 0;
  if ($at < 0) {
    $missed = 1;
    return;
  }
  my $fd = syscall $byhandle, $at, pack("Ll", $bytes, $type) . substr($info, 20, $bytes), 0x200000;
  syscall $close, $at;
  return if $fd < 0; # it is deleted, and its own name is in another event
  my $path = readlink "/proc/self/fd/$fd";
  syscall $close, $fd;
  return defined $path && $path !~ / \(deleted\)$/ ? $path : undef;
}

# Takes what happened to a name. At the end it says what happened to it first.
sub file {
  my ($mask, $info, $first) = @_;
  my ($fsid, $bytes, $type) = unpack "x4 a8 L l", $info;
  my $root = $root{$fsid};
  return if !defined $root;
  if ($root ne "/" && !$first) {
    return $queued{$info}[0] |= $mask if $queued{$info};
    return $missed = 1 if @later >= $most;
    push @later, $queued{$info} = [$mask, $info, $mask];
    return;
  }
  my $path = directory($root, $bytes, $type, $info);
  return if !defined $path;
  my $name = unpack "Z*", substr $info, 20 + $bytes;
  $path .= ($path =~ m{/$} ? "" : "/") . $name if $name ne ".";
  if (!exists $files{$path}) {
    return $missed = 1 if @order >= $most;
    push @order, $path;
    # Whether it was there before: what comes first is not that it was made.
    $files{$path} = [!(($first || $mask) & 0x180), 0];
  }
  $files{$path}[1] |= $mask;
}

vec($wait, $notices, 1) = 1;
vec($wait, 0, 1) = 1;
# After the end it looks once more: all that belongs to the command was there before.
for (my $end = 0; $end < 2;) {
  select my $r = $wait, undef, undef, undef;
  # In this order, since a file is changed by a process that is there, and the command begins when it was
  # announced.
  my @files = names();
  my @processes = processes();
  $end++ if input() && @files < $most && @processes < $most_processes;
  for (@processes) {
    my ($what, @id) = @$_;
    if (!defined $word) {
      process($what, @id);
    } else {
      @held < $most_processes ? push @held, $_ : ($missed = 1) if $what == 1 || $what == 0x80000000;
      found($id[1]) if $what == 2 && index(join("", lines("/proc/$id[1]/cmdline")), $word) >= 0;
    }
  }
  for (@files) {
    if (defined $word) { # it writes its own record, whose name is the word; on this machine the bot makes that
      @unknown < $most ? push @unknown, $_ : ($missed = 1);
      my ($bytes) = unpack "x12 L", $_->[2];
      found($_->[1]) if $word eq unpack("Z*", substr $_->[2], 20 + $bytes) && $_->[1] != getppid;
    } elsif ($ours{$_->[1]}) {
      file($_->[0], $_->[2]);
    }
  }
}
exit if !$seen; # it never saw the command
print "\nend\n", firewall();
look();
file(@$_) for @later;
for my $p (keys %left) {
  my (undef, undef, $state, $name) = began($p) or next;
  # What keeps the command's output ends a moment after it, and what ends has no arguments any more.
  my $line = join "", lines("/proc/$p/cmdline");
  next if $line eq "" || defined $announced && index($line, $announced) >= 0;
  print "q $p $name\n" if $state !~ /[ZX]/;
}
print "\nfiles\n";
for (@order) {
  my ($was, $mask) = @{$files{$_}};
  my ($is, $what) = newer($_, @now);
  if (!defined $what) {
    print "d $_\0" if $was; # else it came and went
  } elsif ($what) { # else it was only opened for writing
    print $mask & 0x188 ? "w" : $what eq "l" ? $what : "a", " $_\0";
  }
}
print "o\0" if $missed;
print "\0z\0";
