# Records what a command does to files and which processes it leaves, until its input ends. A line of its input
# says whose changes count: "pid" and a number, or "mark" and a word among the arguments of the command's first
# process. Then it prints "end", and what look.pl says.
#
# It is passive: fanotify tells who changed which name, and the kernel's process events tell who comes from whom
# (fanotify(7), linux/cn_proc.h). Nothing waits for it, so a command that is recorded is as it is without.

my (%ours, %left, %files, @order, @later, %queued, $word, $missed, $seen);
my $most = 5000;            # names
my $most_processes = 20000;

sub processes {
  for (;;) {
    my $b;
    if (!defined recv $events, $b, 8192, 0x40) {
      last if $! != 105; # the kernel dropped some
      $missed = 1;
      next;
    }
    my ($what, @id) = unpack "x36 L x12 L4", $b;
    if ($what == 1) {
      next if !$ours{$id[1]};
      $missed = 1 if keys %ours >= $most_processes;
      $ours{$id[3]} = $left{$id[3]} = 1 if keys %ours < $most_processes;
    } elsif ($what == 2 && defined $word) {
      next if index(join("", lines("/proc/$id[1]/cmdline")), $word) < 0;
      $seen = $ours{$id[1]} = 1;
      undef $word;
    } elsif ($what == 0x80000000) {
      delete $left{$id[1]} if $id[0] == $id[1];
    }
  }
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
for (my $end = 0; !$end;) {
  select my $r = $wait, undef, undef, undef;
  if (vec $r, 0, 1) {
    if (sysread STDIN, my $line, 4096) {
      for (split /\n/, $line) {
        my ($kind, $what) = split / /, $_, 2;
        $kind eq "pid" ? $seen = $ours{$what} = 1 : ($word = $what);
      }
    } else {
      $end = 1;
    }
  }
  my @seen;
  for (;;) {
    my $b = "\0" x 65536;
    my $n = syscall $read, $notices, $b, 65536;
    last if $n <= 0;
    for (my $i = 0; $i < $n;) {
      my ($len, $head, $mask, $pid) = unpack "L x2 S Q x4 l", substr $b, $i, 24;
      $missed = 1 if $mask & 0x4000;
      push @seen, [$mask, $pid, substr $b, $i + $head, $len - $head];
      $i += $len;
    }
  }
  processes(); # after the files: who came from whom is known by then
  $ours{$_->[1]} and file($_->[0], $_->[2]) for @seen;
}
exit if !$seen; # it never saw the command
print "end\n";
look();
file(@$_) for @later;
for my $p (keys %left) {
  my (undef, undef, $state, $name) = began($p) or next;
  print "q $p $name\n" if $state !~ /[ZX]/;
}
print "files\n";
for (@order) {
  my ($was, $mask) = @{$files{$_}};
  my ($is, $what) = newer($_, @now);
  if (!defined $what) {
    print "d $_\0" if $was; # else it came and went
  } elsif ($what) { # else it was only opened for writing
    print $mask & 0x188 ? "w" : "a", " $_\0";
  }
}
print "o\0" if $missed;
print "\0z\0";
