export { type TunnelClient, type TunnelInput, Tunnels, type TunnelTarget } from "./tunnels.ts";
