#!/usr/bin/env bash
# Shows how far a command is, from what it prints: COMMAND 2>&1 | scripts/progress.sh LABEL [--quiet]
#
# Reads ninja's "[12/65] ..." and apt's status lines (APT::Status-Fd). On a terminal one line is renewed every second,
# elsewhere there is a line every 20 seconds and a last one. Other lines are printed whole; --quiet drops them.
set -euo pipefail
label=$1 quiet=${2:-}
trap '' INT # what the command says of its end is still shown

live=0 width=80
if [[ -t 1 && ${TERM:-dumb} != dumb ]]; then
  live=1
  width=$(tput cols 2>/dev/null || echo 80)
fi
state='' shown='' next=20

show() { # the line below all others, or one that stays
  local text
  printf -v text '%-8s%s  %dm%02ds' "$label" "$state" $((SECONDS / 60)) $((SECONDS % 60))
  shown=$state
  if ((live)); then printf '\r%s\e[K' "${text:0:width-1}"; else printf '%s\n' "$text"; fi
}
wipe() { if ((live)) && [[ -n $shown ]]; then printf '\r\e[K'; fi; }

take() { # a whole line
  if [[ $1 =~ ^\[([0-9]+)/([0-9]+)\]\ (.*) ]]; then
    local done=${BASH_REMATCH[1]} of=${BASH_REMATCH[2]} what=${BASH_REMATCH[3]}
    what=${what##*/nought_} what=${what%%.dir/*}
    state="$done of $of, $((100 * done / of))%  ${what##*/}"
  elif [[ $1 =~ ^(dl|pm)status:[^:]*:([0-9]+)[^:]*:(.*) ]]; then
    local verb=download
    [[ ${BASH_REMATCH[1]} == pm ]] && verb=unpack
    state="$verb ${BASH_REMATCH[2]}%  ${BASH_REMATCH[3]}"
  elif [[ -z $quiet ]]; then
    wipe
    printf '%s\n' "$1"
  fi
}

line='' part='' code=0
while ((code == 0 || code > 128)); do
  code=0
  IFS= read -r -t 1 part || code=$? # over 128: nothing for a second, `part` is the beginning of a line
  line+=$part
  if ((code <= 128)) && [[ $code == 0 || -n $line ]]; then
    take "$line"
    line=''
  fi
  [[ -n $state ]] || continue
  if ((live)); then
    show
  elif ((SECONDS >= next)); then
    show
    next=$((SECONDS + 20))
  fi
done
if [[ -n $state ]]; then
  if ((live)); then
    show
    printf '\n'
  elif [[ $state != "$shown" ]]; then
    show
  fi
fi
