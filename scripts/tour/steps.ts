/** A line of shell as people type it, and what its output has to show. */
export interface Step {
  readonly title: string;
  readonly line: string;
  readonly shows: RegExp;
}

const SCRIPT = "tr a-z A-Z; echo 'and this is an error' >&2; exit 3";
const ENVIRONMENT = "env | grep -E '^(TOUR|SVC)_' | sort";

/** What the tour shows. The lines run in a folder of their own, in which ./creds are the agent's credentials. */
export const STEPS: readonly Step[] = [
  {
    title: "Health: is the workload ready, and what is it doing? (It declares itself idle on its own socket.)",
    line: "until guestctl health | grep idle; do sleep 0.1; done; guestctl health",
    shows: /^ready: +yes$/m,
  },
  {
    title: "Exec on pipes: input goes in, output and errors come back apart, the exit comes last",
    line: `echo hello sandbox | guestctl exec -i -- sh -c "${SCRIPT}"; echo "exit code $?"`,
    shows: /^HELLO SANDBOX$[^]*^and this is an error$[^]*^exit code 3$/m,
  },
  {
    title: "A command that is over its time, and one that is not there",
    line: 'guestctl exec --timeout 200ms -- sleep 60; echo "exit code $?"; guestctl exec -- /no/such/command; echo "exit code $?"',
    shows: /^exit code 124$[^]*\/no\/such\/command[^]*^exit code 127$/m,
  },
  {
    title: "Exec in a terminal",
    line: "guestctl exec -t -- sh -c 'tty; stty size'",
    shows: /^\/dev\/pts\/\d+\r?\n\d+ \d+\r?$/m,
  },
  {
    title: "A command that outlives its connection: start it, leave, attach from elsewhere, and nothing is lost",
    line: "guestctl exec --name numbers -d --buffer 64K --when-full block -- seq 200000; guestctl execs; guestctl attach numbers | wc -l",
    shows: /^200000$/m,
  },
  {
    title: "The environment in three layers: inherited without the agent's own, Process.env, ExecStart.env",
    line: `guestctl exec -e TOUR_REQUEST=from-request -e TOUR_SHARED=from-request -- sh -c "${ENVIRONMENT}"`,
    shows:
      /^TOUR_INHERITED=from-image\nTOUR_PROCESS=from-process-spec\nTOUR_REQUEST=from-request\nTOUR_SHARED=from-request$/,
  },
  {
    title: "Files: written in one piece or not at all, with owner and mode, and read back",
    line: 'echo carried into the sandbox > greeting; guestctl cp greeting ":$PWD/inside"; guestctl chmod 0640 "$PWD/inside"; guestctl ls -l "$PWD/inside"; guestctl cat "$PWD/inside"',
    shows: /rw-r-----[^]*^carried into the sandbox$/m,
  },
  {
    title:
      "Around a snapshot: the hook before it, then the session frozen; after the restore the duties, which thaw it",
    line: "guestctl hook pre-snapshot --freeze 60s; guestctl restore --no-time; guestctl hook post-restore",
    shows: /^at rest$[^]*^entropy: +64 bytes mixed in/m,
  },
  {
    title: "Who is refused: a certificate of another authority, and a guessed token",
    line: "guestctl issue other > /dev/null; cp creds/ca.pem creds/token other; guestctl health -c other; cp -r creds guess; echo guessed > guess/token; guestctl health -c guess",
    shows: /CLIENT_CERTIFICATE_REFUSED[^]*UNAUTHENTICATED/,
  },
];
