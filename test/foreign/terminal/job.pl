# A job that says when it is in the foreground, and when the size of its terminal has changed.
use POSIX;
$| = 1;
my ($front, $size) = (0, "");
$SIG{CONT} = sub { $front = 0 };
for (;;) {
    my $now = tcgetpgrp(0) == getpgrp();
    print "in front\n" if $now && !$front;
    $front = $now;
    chomp(my $seen = `stty size`);
    print "size $seen\n" if $now && $seen ne $size;
    $size = $seen;
    select(undef, undef, undef, 0.05);
}
