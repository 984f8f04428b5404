export type { ListeningPort, PortChanges } from "./port-list.ts";
export { type TunnelClient, type TunnelInput, Tunnels, type TunnelTarget } from "./tunnels.ts";
