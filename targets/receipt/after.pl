# Prints what a machine has after a command, and what is newer than the look before it: files of the system, of
# the home directory, and of some directories, and processes.
#
# Arguments: the three numbers of the look's "t" line, the shell whose children count, the home directory, the
# directories.

# Prints what is newer below a directory, and returns whether anything is. Where an overlay copies a file, the
# directory's attributes are newer, and nobody changed them.
my ($looked, $most_looked) = (0, 20000);
$overlay = grep { (split / /)[4] eq "/" && / - overlay / } lines("/proc/self/mountinfo");
sub walk {
  my ($dir, $depth, @since) = @_;
  my (undef, $what) = newer($dir, @since);
  return 0 if !defined $what;
  my $listed = opendir(my $d, $dir);
  my $below = 0;
  for my $name ($listed ? readdir $d : ()) {
    next if $name eq "." || $name eq ".." || ++$looked > $most_looked;
    my $time = (lstat "$dir/$name")[10] // next;
    next if $time < $since[0] && ($depth == 1 || !-d _); # most are old
    my ($is, $what) = newer("$dir/$name", @since);
    next if !defined $what;
    if ($is && $depth > 1) {
      $below = 1 if walk("$dir/$name", $depth - 1, @since);
    } elsif ($what) {
      print "$what $dir/$name\0";
      $below = 1;
    }
  }
  $what = "" if $what eq "a" && $below && $overlay;
  print "$what $dir\0" if $what;
  return $below || $what;
}

my ($sec, $nsec, $ticks, $shell, $home, @dirs) = @ARGV;
my ($now, undef, $up) = clocks();
my $ahead = $now - $sec - ($up - $ticks) / 100;
$sec += int($ahead) - 1 if $ahead < -1; # the clock was set back since
look();
names($home, @dirs);
opendir(my $d, "/proc");
for my $p (grep { !/[^0-9]/ } readdir $d) {
  my ($at, $parent, $state, $name) = began($p) or next;
  next if $parent != 1 && $parent != $shell || $at < $ticks || $state =~ /[ZX]/;
  # The bot's own are its terminals' server and its timers.
  print "q $p $name\n" if join("", lines("/proc/$p/cmdline")) !~ m{\0-L\0countersign-|/countersign-};
}
print "\nfiles\n";
walk($_, 12, $sec, $nsec) for "/etc", "/var/spool/cron", "/usr/local/bin", "/usr/local/sbin", "/usr/lib/systemd/system";
walk($_, 2, $sec, $nsec) for real($home);
walk($_, 1, $sec, $nsec) for "/usr/bin", "/usr/sbin", "/boot", "/var/lib/dpkg", "/var/lib/rpm", "/usr/lib/sysimage/rpm", "/lib/apk/db", real(@dirs);
print "o\0" if $looked > $most_looked;
print "\0z\0";
