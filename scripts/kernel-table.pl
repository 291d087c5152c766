#!/usr/bin/perl
# The table of scripts/check-cuda.sh --table: what nvcc made of each kernel.
#
#   kernel-table.pl FOLDER
#
# FOLDER/ARCH/FILE.log is what `nvcc -Xptxas -v` wrote for FILE.cu and sm_ARCH, FILE.ptx its PTX, and FILE.sass, which may be
# missing, its listing by nvdisasm or `cuobjdump -sass`. Exit code 1: there are defects, which stand at the end. Defects are
# spills of attention, and files for tensor cores (*mma*) without their instructions. ptxas spills a few bytes elsewhere where
# that lets one more block run; these are named, and are none.
use strict;
use warnings;
use File::Glob ();

# What a multiprocessor has, by architecture: warps, blocks, and bytes of shared memory (CUDA programming guide, compute
# capabilities). All have 65536 registers, which go to warps by 256, a fourth of them to each scheduler; a block takes
# shared memory by 128 bytes, and 1024 bytes more from 80 on.
my %limits = (
  75 => [32, 16, 64], 80 => [64, 32, 164], 86 => [48, 16, 100], 87 => [48, 16, 164], 89 => [48, 24, 100],
  90 => [64, 32, 228], 100 => [64, 32, 228], 103 => [64, 32, 228], 110 => [48, 24, 228], 120 => [48, 24, 100],
  121 => [48, 24, 100]);
my ($registers, $unit, $schedulers, $warp) = (65536, 256, 4, 32);

# Instructions, by the columns that count them.
my @columns = ('tensor', 'async');
my %in_sass = (
  tensor => qr/^(?:[HIDQ]MMA|[HIDQ]GMMA|[A-Z]*TC[A-Z]*MMA)$/,
  async => qr/^(?:LDGSTS|UBLKCP|UTMALDG|UTMASTG)$/);
my %in_ptx = (
  tensor => qr/^(mma|wgmma|wmma|tcgen05)\.(?!wait|commit|fence|load|store|ld|st|alloc)/,
  async => qr/^(cp)\.async\.(?!wait|commit|mbarrier)/);

sub fail { print STDERR "kernel-table: error: @_\n"; exit 2 }

sub each_line {
  my ($path, $do) = @_;
  open(my $in, '<', $path) or fail("cannot read $path: $!");
  while (my $line = <$in>) { chomp $line; $do->($line) }
}

# The kernels of a log, by their mangled names.
sub kernels_of {
  my ($log) = @_;
  my (%kernels, $at, %frame);
  each_line($log, sub {
    $_ = shift;
    if (/Compiling entry function '(\S+)'/) { $at = $1; $kernels{$at} = {spilled => 0, filled => 0, stack => 0, shared => 0} }
    return unless defined $at;
    my $kernel = $kernels{$at};
    if (/(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads/) {
      @frame{'stack', 'spilled', 'filled'} = ($1, $2, $3);  # of the kernel: those of functions stand before "Compiling"
      $kernel->{$_} = $frame{$_} for keys %frame;
    }
    if (/Used (\d+) registers/) {
      $kernel->{registers} = $1;
      $kernel->{shared} = $1 if /(\d+) bytes smem/;
      undef $at;
    }
  });
  return \%kernels;
}

sub count {
  my ($kernel, $name, $patterns) = @_;
  for my $column (@columns) { $kernel->{$column}{$1 // $name}++ if $name =~ $patterns->{$column} }
}

sub add_ptx {
  my ($path, $kernels, $counts) = @_;
  my ($kernel, %wide);
  each_line($path, sub {
    $_ = shift;
    if (/^\s*(?:\.visible\s+|\.weak\s+)?\.(entry|func)\b(?:.*\s)?([\w\$]+)\(/) { $kernel = $1 eq 'entry' ? $kernels->{$2} : undef }
    if (/^\s*\.extern\s+\.shared.*\s([\w\$]+)\[\]/) { $wide{$1} = 1 }
    return unless $kernel;
    $kernel->{threads} = $1 * $2 * $3 if /^\s*\.maxntid\s+(\d+),\s*(\d+),\s*(\d+)/;
    for my $name (keys %wide) { $kernel->{dynamic} = 1 if index($_, $name) >= 0 }
    count($kernel, $1, \%in_ptx) if $counts && /^\s*(?:\{\s*)?(?:@\S+\s+)?([a-z]\w*(?:\.\w+|::\w+)+)/;
  });
}

sub add_sass {
  my ($path, $kernels) = @_;
  my $kernel;
  each_line($path, sub {
    $_ = shift;
    if (/^\.text\.(\S+):/ || /^\s*Function : (\S+)/) { $kernel = $kernels->{$1} }
    elsif (/^\s*\.section\s/) { undef $kernel }
    count($kernel, $1, \%in_sass) if $kernel && m{^\s*/\*[0-9a-f]{4,}\*/\s+(?:\@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)};
  });
}

# How many blocks a multiprocessor holds, and what it has no more of.
sub blocks_of {
  my ($kernel, $arch) = @_;
  my ($number) = $arch =~ /^(\d+)/;
  my $limit = $limits{$number} or fail("sm_$arch: expected one of " . join(', ', map { "sm_$_" } sort { $a <=> $b } keys %limits));
  my ($warps, $blocks, $shared) = @$limit;
  return unless $kernel->{threads};
  my $of_block = int(($kernel->{threads} + $warp - 1) / $warp);
  my $of_warp = int(($kernel->{registers} * $warp + $unit - 1) / $unit) * $unit;
  my %by = (blocks => $blocks, threads => int($warps / $of_block),
            registers => int($schedulers * int($registers / $schedulers / $of_warp) / $of_block));
  my $bytes = int(($kernel->{shared} + 127) / 128) * 128 + ($number >= 80 ? 1024 : 0);
  $by{shared} = int($shared * 1024 / $bytes) if $bytes > 0;
  my ($least) = sort { $by{$a} <=> $by{$b} || $b cmp $a } keys %by;  # threads, if several are
  return ($by{$least}, $least, 100 * $by{$least} * $of_block / $warps);
}

sub short_name {
  my ($name) = @_;
  $name =~ s/^void //;
  $name =~ s/\(anonymous namespace\):://g;
  $name =~ s/nought::(?:cuda::)?//g;
  my ($depth, $short) = (0, '');
  for my $c (split //, $name) {  # up to the parenthesis of the arguments
    last if $c eq '(' && $depth == 0;
    $depth += $c eq '<' ? 1 : $c eq '>' ? -1 : 0;
    $short .= $c;
  }
  return $short;
}

sub demangled {
  my @names = @_;
  open(my $pipe, '-|', 'c++filt', @names) or return @names;
  chomp(my @plain = <$pipe>);
  return @plain == @names ? @plain : @names;
}

my $folder = $ARGV[0] // fail("which folder?");
my (@rows, @defects, @spills, @without);
my @logs = sort(File::Glob::bsd_glob("$folder/*/*.log"));
for my $log (@logs) {
  my ($arch, $file) = $log =~ m{([^/]+)/([^/]+)\.log$};
  my $path = "$folder/$arch/$file";
  my $kernels = kernels_of($log);
  add_ptx("$path.ptx", $kernels, !-e "$path.sass");
  -e "$path.sass" ? add_sass("$path.sass", $kernels) : push(@without, "$file.cu for sm_$arch");
  my @mangled = sort keys %$kernels;
  next unless @mangled;
  my @names = map { short_name($_) } demangled(@mangled);
  for my $i (0 .. $#mangled) {
    push @rows, {%{$kernels->{$mangled[$i]}}, name => $names[$i], file => $file, arch => $arch};
  }
}
fail("$folder has no kernels") unless @rows;

my $format = "%-7s %9s %11s %6s %8s %7s %7s %9s %-9s %-10s %-11s %s\n";
my $last = '';
for my $row (sort { $a->{file} cmp $b->{file} || $a->{name} cmp $b->{name} || $a->{arch} cmp $b->{arch} } @rows) {
  if ($row->{file} ne $last) {
    printf "%s%s.cu\n$format", $last ? "\n" : '', $row->{file}, 'arch', 'registers', 'spilled', 'stack', 'shared', 'threads',
        'blocks', 'occupancy', 'limit', @columns, 'kernel';
    $last = $row->{file};
  }
  my ($blocks, $limit, $occupancy) = blocks_of($row, $row->{arch});
  my $at_most = $row->{dynamic} ? '<=' : '';
  my %found = map { my $of = $row->{$_}; $_ => $of ? join(' ', map { "$_ $of->{$_}" } sort keys %$of) : '-' } @columns;
  printf $format, "sm_$row->{arch}", $row->{registers}, "$row->{spilled}/$row->{filled}", $row->{stack},
      $row->{shared} . ($row->{dynamic} ? '+' : ''), $row->{threads} // '-', defined $blocks ? "$at_most$blocks" : '-',
      defined $blocks ? sprintf('%s%.0f%%', $at_most, $occupancy) : '-', $limit // '-', @found{@columns}, $row->{name};
  my $which = "$row->{file}.cu, sm_$row->{arch}: $row->{name}";
  push @{$row->{file} =~ /attention/ ? \@defects : \@spills}, "$which spills $row->{spilled} bytes and reads $row->{filled}"
      if $row->{spilled} || $row->{filled};
  push @defects, "$which has no instruction of tensor cores" if $row->{file} =~ /mma/ && !$row->{tensor};
}
print "\nspilled: bytes stored/loaded. blocks: of a multiprocessor at once. +, <=: the launch adds shared memory, which is not in it\n";
printf "missing: columns %s are of the PTX, not of what ptxas made of it, for %s; nvdisasm or cuobjdump in the PATH says that\n",
    join(' and ', @columns), @without == @logs ? 'all files' : join(', ', @without)
    if @without;
print "ptxas spills a few bytes for one more block:\n" if @spills;
print "  $_\n" for @spills;
printf "%d kernels, %d defects\n", scalar @rows, scalar @defects;
print "  $_\n" for @defects;
exit(@defects ? 1 : 0);
