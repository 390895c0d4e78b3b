# Sourced by local and hosts: how they run a launcher to its end.
#
# Open MPI answers INT and TERM by killing its ranks a quarter of a second later, too soon for a checkpoint. So signals go to
# the ranks of this machine themselves, where training jobs answer them with one. Where there is none, mpirun gets `gentle`
# (USR2), which it passes on; it may crash or hang when it does.

grace=${LEAPMPI_GRACE:-60} # seconds that ranks have to save and end
[[ $grace =~ ^[1-9][0-9]{0,5}$ ]] || fail "LEAPMPI_GRACE must be a positive whole number of seconds, not '$grace'"

# With less, Python crashes before it can say why.
stack=$(ulimit -s)
[[ $stack == unlimited || $stack -ge 256 ]] ||
    fail "the stack is limited to $stack KiB (ulimit -s), and Python needs 256 KiB at the very least; raise it: ulimit -s 8192"

descendants() {
    local child
    for child in $(pgrep -P "$1"); do
        echo "$child"
        descendants "$child"
    done
}

ranks_below() {
    local child
    for child in $(pgrep -P "$1"); do
        if grep -qsz '^OMPI_COMM_WORLD_RANK=' "/proc/$child/environ"; then echo "$child"; else ranks_below "$child"; fi
    done
}

# Send a signal to the ranks of this machine, or the second one to the launcher where it has none here.
signal_ranks() {
    local ranks
    ranks=$(ranks_below "$job")
    if [[ -n $ranks ]]; then kill "-$1" $ranks; else kill "-${2:-$1}" "$job"; fi 2>/dev/null
}

wait_or_kill() { # `read` waits without a process of its own
    read -rt "$grace" _ <> <(:) || kill -TERM "$job"
    read -rt 5 _ <> <(:) || kill -KILL $(descendants "$job") "$job"
}

# Send the job a signal to end, the second time SIGTERM. What still runs after the grace is killed.
killer=
end_job() {
    if [[ -n $killer ]]; then
        kill -TERM "$job" 2>/dev/null
        return
    fi
    if [[ -n ${gentle:-} ]]; then signal_ranks "$1" "$gentle"; else kill "-$1" "$job" 2>/dev/null; fi
    wait_or_kill 2>/dev/null &
    killer=$!
}

# Run a launcher and its arguments; the exit code is the job's.
launch() {
    # In the background, so that this shell handles signals at once; job control, so that Ctrl-C is not ignored there.
    set -m
    "$@" </dev/null &
    job=$!
    set +m
    trap 'end_job INT' INT
    trap 'end_job TERM' TERM HUP
    trap 'signal_ranks USR1' USR1
    trap 'signal_ranks USR2' USR2

    local code=0
    while :; do
        wait "$job" 2>/dev/null
        code=$?
        kill -0 "$job" 2>/dev/null || break
    done
    [[ -n $killer ]] && kill "$killer" 2>/dev/null
    return "$code"
}
