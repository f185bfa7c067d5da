# Waits for a line with directories behind tabs; then a command is about to run. Prints what the machine has then, and
# begins to record, where it may: "ready" then, else "none". The argument is record.pl, which is compiled while the
# command starts.
alarm 900; # not every engine ends the input when the bot died
chomp(my $go = <STDIN> // exit);
(undef, @named) = split /\t/, $go;
alarm 0;

my @now = clocks();
print join(" ", "t", @now), "\n";
look();

none() if $>; # the kernel tells only root

# Process events are there only in the first namespaces (PROC_PID_INIT_INO, PROC_USER_INIT_INO); the answer to the request tells of the others.
none() if (readlink("/proc/self/ns/pid") // "") ne "pid:[4026531836]" || (readlink("/proc/self/ns/user") // "") ne "user:[4026531837]";
socket(my $events, 16, 2, 11) or none();
bind($events, pack "SSLL", 16, 0, 0, 1) or none();
setsockopt($events, 1, 33, pack "i", 8 << 20);
send($events, pack("LSSLL", 40, 3, 0, 0, $$) . pack("LLLLSSL", 1, 1, 0, 0, 4, 0, 1), 0) or none();
my $wait = "";
vec($wait, fileno $events, 1) = 1;
for (my $end = time + 2;;) { # where it isn't answered there may be events that others asked for
  none() if time > $end || select(my $r = $wait, undef, undef, 1) < 1 || !defined recv $events, my $b, 8192, 0;
  my ($what, $error) = unpack "x36 L x12 L", $b;
  next if $what;
  none() if $error;
  last;
}

# Every file system of the machine that files lie on, once. Events tell directories by handles. Nothing of a file
# system but the root's is held open, since it could not be unmounted then.
my $notices = syscall $init, 0x1 | 0x2 | 0x10 | 0xc00, 0x80000;
none() if $notices < 0;
my (%root, %had);
my $masks = 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x40000000; # attributes, closed after writing, moved, created, deleted
for (lines("/proc/self/mountinfo")) {
  my @f = split / /;
  none() if $f[4] eq "/" && / - overlay /; # its handles lead to names without their directories
  next if $had{$f[2]} || !/ - (ext[234]|xfs|btrfs|f2fs|vfat|tmpfs|zfs|bcachefs) /;
  (my $dir = $f[4]) =~ s/\\([0-7]{3})/chr oct $1/ge;
  next if syscall($mark, $notices, 0x101, $masks, -100, $dir) < 0;
  my $st = "\0" x 120;
  next if syscall($statfs, $dir, $st) < 0;
  $root{substr $st, 56, 8} = $dir;
  $had{$f[2]} = 1;
}
none() if !%root;
print firewall(), "\nready\n";

eval shift @ARGV;
