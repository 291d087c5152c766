#!/usr/bin/perl
# Reads the lists of known mistakes and puts them into code; scripts/mutants.sh tells the form and runs the tests.
#
#   mutants.pl check                    tells whether every edit applies exactly once; names those that do not
#   mutants.pl list                     a line for each: name, file, test program, filter, why it may survive, words; by tabs
#   mutants.pl change NAME FOLDER       writes the changed file below FOLDER, and prints which one it is
#   mutants.pl build NAME FOLDER BUILD  does so, and writes the commands that build its test program in FOLDER, from what is
#                                       built in BUILD
use strict;
use warnings;
use Cwd ();
use File::Basename ();
use File::Path ();

my $SEP = "\x01";  # between tokens, and before the first and behind the last
my $skipped = qr{(?:\s+|//[^\n]*|/\*.*?\*/|\\\n)*+}s;
my $token = qr{$skipped(
    (?:u8|[uUL])?R"([^()\\\s]*)\(.*?\)\g2"     # a raw string
  | (?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"
  | (?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'
  | [A-Za-z_]\w*
  | \.?\d(?:[eEpP][+-]|'\w|[\w.])*
  | <=>|<<=|\.\.\.|::|->|\+\+|--|&&|\|\||<<|[-+*/%&|^!=<>]=
  | \S)}xs;

sub fail { print STDERR "mutants: error: @_\n"; exit 2 }

sub tokens_of {
  my ($text) = @_;
  my @tokens;
  push @tokens, $1 while $text =~ /\G$token/gc;
  return @tokens;
}

sub joined { return @_ ? $SEP . join($SEP, @_) . $SEP : '' }

sub content_of {
  my ($path) = @_;
  open(my $in, '<', $path) or fail("cannot read $path: $!");
  local $/;
  return scalar(<$in>);
}

sub write_file {
  my ($path, @text) = @_;
  open(my $out, '>', $path) or fail("cannot write $path: $!");
  print $out @text;
  close($out) or fail("cannot write $path: $!");
}

# --- the lists ---

my (@mutants, %by_name);

sub read_list {
  my ($path) = @_;
  my ($folder) = $path =~ m{([^/]+)\.txt$};
  my $mutant;
  open(my $in, '<', $path) or fail("cannot read $path: $!");
  while (my $line = <$in>) {
    $line =~ s/\s+$//;
    next if $line eq '' || $line =~ /^#/;
    if ($line =~ /^\[(\S+)\]\s*(\S*)\s*(\S*)$/) {
      $mutant = {name => "$folder/$1", program => $2, filter => $3, folder => $folder, words => '', edit => '', survives => ''};
      fail("$path:$.: $folder/$1 is there twice") if $by_name{"$folder/$1"};
      push @mutants, $by_name{"$folder/$1"} = $mutant;
      next;
    }
    fail("$path:$.: this stands before the first [name]") if !$mutant;
    my $kind = $line =~ s/^\s+// ? 'edit' : $line =~ s/^survives: // ? 'survives' : 'words';
    $mutant->{$kind} .= ($mutant->{$kind} eq '' ? '' : ' ') . $line;
  }
}

sub read_lists {
  read_list($_) for sort glob('scripts/mutants/*.txt');
  for my $mutant (@mutants) {
    my $name = $mutant->{name};
    fail("$name does not say what is wrong") if $mutant->{words} eq '';
    fail("$name names no test") if $mutant->{filter} eq '';
    my ($folder, $place, $old, $new) = $mutant->{edit} =~ m{^(?:in (?:(\w+)/)?([\w:~]*): )?(.+?) =>(?: (.*))?$}
      or fail("$name has no edit 'old => new'");
    $mutant->{folder} = $folder if defined $folder;
    @$mutant{'place', 'new'} = ($place // '', $new // '');
    $mutant->{old} = joined(tokens_of($old));
    fail("$name changes nothing") if $mutant->{old} eq joined(tokens_of($mutant->{new}));
  }
}

# --- the code ---

# The source files below a folder.
sub sources_below {
  my ($folder) = @_;
  return map { -d $_ ? sources_below($_) : /\.(?:h|cpp|cu)$/ ? $_ : () } glob("$folder/*");
}

# The files of a folder of src/nought, and their tokens.
my %folders;
sub files_of {
  my ($folder) = @_;
  return $folders{$folder} //= {map { $_ => joined(tokens_of(content_of($_))) } sources_below("src/nought/$folder")};
}

# The definitions of a function or class of this name: [first token, what is joined of its tokens] of each. One goes from
# its name to the brace that ends it; what ends before a brace is a declaration or a call.
sub definitions {
  my ($code, $name) = @_;
  my $named = joined(tokens_of($name));
  return () if index($code, $named) < 0;
  my @tokens = split /$SEP/, substr($code, 1);
  my @parts = tokens_of($name);
  my @found;
  for my $i (0 .. $#tokens - @parts) {
    next if $tokens[$i] ne $parts[0] || joined(@tokens[$i .. $i + $#parts]) ne $named;
    my $is_class = $i > 0 && $tokens[$i - 1] =~ /^(?:class|struct|union|enum|namespace)$/;
    next if !$is_class && $tokens[$i + @parts] ne '(';
    my $end = end_of_definition(\@tokens, $i + @parts);
    push @found, [$i, joined(@tokens[$i .. $end])] if defined $end;
  }
  return @found;
}

sub end_of_definition {
  my ($tokens, $i) = @_;
  my $round = 0;
  for (; $i < @$tokens; ++$i) {
    my $at = $tokens->[$i];
    if    ($at eq '(') { ++$round }
    elsif ($at eq ')') { return undef if --$round < 0 }
    elsif ($round > 0) { next }
    elsif ($at eq ';' || $at eq '}') { return undef }
    elsif ($at eq '{') {
      my $depth = 0;
      for (; $i < @$tokens; ++$i) {
        ++$depth if $tokens->[$i] eq '{';
        last if $tokens->[$i] eq '}' && --$depth == 0;
      }
      my $next = $tokens->[$i + 1] // '';  # behind a member's initializer there is more
      return $i if $next ne ',' && $next ne '{';
    }
  }
  return undef;
}

# The places of the edit's old code: [file, first token] of each.
sub matches {
  my ($mutant) = @_;
  my $files = files_of($mutant->{folder});
  my @found;
  for my $file (sort keys %$files) {
    my $code = $files->{$file};
    next if index($code, $mutant->{old}) < 0;
    for my $part ($mutant->{place} eq '' ? [0, $code] : definitions($code, $mutant->{place})) {
      my ($first, $tokens) = @$part;
      for (my $at = 0; ($at = index($tokens, $mutant->{old}, $at)) >= 0; ++$at) {
        push @found, [$file, $first + (substr($tokens, 0, $at) =~ tr/\x01//)];
      }
    }
  }
  return @found;
}

# The file and the first token that an edit changes, or nothing; says why.
sub place_of {
  my ($mutant) = @_;
  my $where = "src/nought/$mutant->{folder}" . ($mutant->{place} eq '' ? '' : ", $mutant->{place}");
  my @found = matches($mutant);
  return @{$found[0]} if @found == 1;
  my $why = !-d "src/nought/$mutant->{folder}" ? "there is no folder src/nought/$mutant->{folder}"
    : @found == 0 ? "the old code is not in $where"
    : "the old code is " . @found . " times in $where: " . join(', ', map { $_->[0] } @found);
  print STDERR "$mutant->{name}: $why\n";
  return;
}

# Writes the changed file below FOLDER, where -I FOLDER finds it before that of the house; returns its path in the house.
sub write_changed {
  my ($mutant, $folder) = @_;
  my ($file, $first) = place_of($mutant) or exit 2;
  my $text = content_of($file);
  my $last = $first + ($mutant->{old} =~ tr/\x01//) - 2;
  my ($begin, $end);
  for (my $i = 0; $i <= $last && $text =~ /\G$token/gc; ++$i) {
    $begin = $-[1] if $i == $first;
    $end = $+[1];
  }
  substr($text, $begin, $end - $begin) = $mutant->{new};
  my $path = $folder . substr($file, length('src'));
  File::Path::make_path(File::Basename::dirname($path));
  write_file($path, $text);
  return $file;
}

# --- what is built ---

# What a build folder compiles: object => {command, sources}. A unity source stands for those that it includes.
sub objects_of {
  my ($build) = @_;
  my %objects;
  my $json = content_of("$build/compile_commands.json");
  while ($json =~ /"command": "((?:[^"\\]|\\.)*)",\s*"file": "([^"]*)"/g) {
    my ($command, $source) = ($1, $2);
    $command =~ s/\\(.)/$1/g;
    my ($object) = $command =~ / -o (\S+)/ or next;
    my @sources = $source =~ m{/Unity/unity_\d+_\w+\.\w+$} ? content_of($source) =~ /^#include "(.*)"/mg : $source;
    $objects{$object} = {command => $command, sources => \@sources};
  }
  return \%objects;
}

sub lines_of {
  my (@command) = @_;
  open(my $in, '-|', @command) or fail("cannot run @command: $!");
  chomp(my @lines = <$in>);
  return @lines;
}

sub in_path { return scalar(grep { -x "$_/$_[0]" } split /:/, $ENV{PATH}) }

sub compile_command {
  my ($object, $folder, $source, $output) = @_;
  my $command = $object->{command};
  $command =~ s/ -o \S+//;
  my ($compiled) = $command =~ / -c (\S+)$/ or fail("what is compiled by $command?");
  $command =~ s/ -c \S+$//;
  $command =~ s/ -M(?:D|[TFQ] \S+)//g;
  $command =~ s/ -I/ -I$folder\/include -I/;
  $command = "CCACHE_SLOPPINESS=pch_defines,time_macros ccache $command" if in_path('ccache');
  $command =~ s/ -Werror\b//g; # a mistake may leave a name unused
  return "$command -o $output " . (defined $source ? "-x c++ -c $source" : "-c $compiled");
}

# The objects that read a header, but tests that have no suite of the filter.
sub readers_of {
  my ($file, $build, $objects, $is_input, $mutant) = @_;
  my ($program) = split /\+/, $mutant->{program};
  my (@suites, @readers, $object);
  if ($mutant->{filter} !~ /^ctest:/) {
    @suites = map { m{^(?:\w+/)?(\w+)(?:/\w+)?\.} ? $1 : () }
      lines_of("$build/bin/$program", '--gtest_list_tests', "--gtest_filter=$mutant->{filter}");
  }
  my $suite = join('|', @suites);
  for my $line (lines_of('ninja', '-C', $build, '-t', 'deps')) {
    $object = $1 if $line =~ /^(\S+): #deps/;
    next if $line !~ m{^\s.*\b\Q$file\E$} || !$is_input->{$object} || !$objects->{$object};
    next if $suite ne '' && !grep { !/_test\.cpp$/ || content_of($_) =~ /\(\s*(?:$suite)\s*,/ } @{$objects->{$object}{sources}};
    push @readers, $object;
  }
  return @readers;
}

# Writes FOLDER/compile and FOLDER/link, a command a line, which build the programs of a mistake in FOLDER from what is built
# in BUILD. The changed file is compiled alone, and its object stands before all others: of two definitions the linker takes
# the first, and with -fPIC no caller has one built in. For a header all objects that read it take the place of the old ones.
sub write_commands {
  my ($mutant, $build, $folder) = @_;
  my $file = write_changed($mutant, "$folder/include");
  my $source = "$folder/include" . substr($file, length('src'));
  my $objects = objects_of($build);
  my @programs = split /\+/, $mutant->{program};
  my %inputs = map { $_ => {map { $_ => 1 } lines_of('ninja', '-C', $build, '-t', 'inputs', "bin/$_")} } @programs;
  my %is_input = map { %$_ } values %inputs;
  my (@compile, %instead);
  if ($file =~ /\.(?:cpp|cu)$/) {
    my @of = grep { $is_input{$_} && grep { $_ eq Cwd::getcwd() . "/$file" } @{$objects->{$_}{sources}} } sort keys %$objects;
    fail("$mutant->{name}: nothing in $mutant->{program} is made of $file") if !@of;
    @compile = compile_command($objects->{$of[0]}, $folder, $source, "$folder/changed.o");
    $instead{"$folder/changed.o"} = $of[0];
  } else {
    for my $object (readers_of($file, $build, $objects, \%is_input, $mutant)) {
      my $new = "$folder/" . ($object =~ tr{/}{_}r);
      push @compile, compile_command($objects->{$object}, $folder, undef, $new);
      $instead{$new} = $object;
    }
    fail("$mutant->{name}: nothing in $mutant->{program} reads $file") if !@compile;
  }
  my $linker = in_path('ld.lld') ? ' -fuse-ld=lld' : '';
  my @link;
  for my $program (@programs) {
    my ($command) = (lines_of('ninja', '-C', $build, '-t', 'commands', '-s', "bin/$program"))[-1] =~ /^: && (.*?) && /
      or fail("how is $program linked?");
    my (@first, @library); # what a library holds is linked where it is asked for
    for my $new (sort keys %instead) {
      my $old = $instead{$new};
      next if !$inputs{$program}{$old};
      my $is_own = $new eq "$folder/changed.o" || $command =~ s/ \Q$old\E(?= )//;
      push @{$is_own || $linker eq '' ? \@first : \@library}, $new;
    }
    push @first, '-Wl,--start-lib', @library, '-Wl,--end-lib' if @library;
    $command =~ s/ -o \S+/ -o $folder\/$program/;
    $command =~ s/^(\S+)/$1 @first -Wl,-z,muldefs$linker/;
    push @link, $command;
  }
  write_file("$folder/compile", map { "$_\n" } @compile);
  write_file("$folder/link", map { "$_\n" } @link);
}

my ($command, $name, $folder, $build) = (@ARGV, '', '', '', '');
read_lists();
if ($command eq 'check') {
  my $bad = grep { !place_of($_) } @mutants;
  fail("$bad of " . @mutants . " edits do not apply") if $bad;
  print "mutants: all " . @mutants . " edits apply\n";
} elsif ($command eq 'list') {
  for my $mutant (@mutants) {
    my ($file) = place_of($mutant);
    print join("\t", $mutant->{name}, $file // '-', @$mutant{'program', 'filter'}, $mutant->{survives} || '-', $mutant->{words}), "\n";
  }
} elsif ($command eq 'change' && $by_name{$name}) {
  print write_changed($by_name{$name}, $folder), "\n";
} elsif ($command eq 'build' && $by_name{$name}) {
  write_commands($by_name{$name}, $build, $folder);
} else {
  fail("unknown command: @ARGV");
}
