#!/bin/sh
# guestctl in place of ssh, for OpenSSH's regress suite. Questions about ssh itself go to ssh.
case $1 in -E*) shift ;; esac # the suite's own log
case $1 in
  -Q | -V | -G) exec ssh "$@" ;;
  *) exec guestctl rsh "$@" ;;
esac
