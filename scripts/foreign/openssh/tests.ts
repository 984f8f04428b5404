/** The tests that are run. */
export const TESTS: readonly string[] = [
  "exit-status",
  "exit-status-signal",
  "transfer",
  "stderr-data",
  "stderr-after-eof",
  "yes-head",
  "broken-pipe",
];

/** Why others are not run, and which. */
const REASONS: Readonly<Record<string, string>> = {
  "SSH's keys, certificates, signatures and their agent: ours are those of TLS": `agent-getpeereid agent-pkcs11 agent-ptrace
    agent-restrict agent-subprocess agent-timeout agent authinfo cert-file cert-hostkey cert-userkey hostbased hostkey-agent
    hostkey-rotate key-options keygen-change keygen-comment keygen-convert keygen-knownhosts keygen-moduli keygen-sshfp
    keys-command keyscan keytype knownhosts-command knownhosts krl limit-keytype multipubkey principals-command sshfp-connect
    sshsig brokenkeys`,
  "SSH's protocol on the wire, its ciphers and key exchange": `cipher-speed dhgex integrity kextype proto-mismatch
    proto-version rekey try-ciphers banner login-timeout connection-timeout channel-timeout`,
  "the configuration and the processes of sshd": `addrmatch allow-deny-users cfgmatch cfgmatchlisten connect-privsep
    forcecommand portnum reconfigure reexec servcfginclude`,
  "the configuration file of ssh, which guestctl does not read, and its percent signs": `cfginclude cfgparse connect-uri
    host-expand localcommand percent proxy-connect sshcfgparse`,
  "variables that the server has to accept: guestctl exec -e gives them": "envpass",
  "connections that are shared and forwarded: guestctl rsh does neither": `multiplex dynamic-forward forward-control
    forwarding connect`,
  "scp and sftp: guestctl cp copies": `scp scp-uri scp3 sftp sftp-badcmds sftp-batch sftp-chroot sftp-cmds sftp-glob sftp-perm
    sftp-uri`,
  "clients of other makes": `conch-ciphers putty-ciphers putty-kex putty-transfer ssh-com ssh-com-client ssh-com-keygen
    ssh-com-sftp`,
};

/** Every other test. */
export const LEFT_OUT: ReadonlySet<string> = new Set(Object.values(REASONS).flatMap((names) => names.split(/\s+/)));
