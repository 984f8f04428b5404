export {
  type Addon,
  type FdWatch,
  LEADS_GROUP,
  LEADS_SESSION,
  LEADS_TERMINAL_SESSION,
  type NativeSpawnOptions,
  READABLE,
  type SpawnHandle,
  type SummingWriter,
  WRITABLE,
} from "./addon.ts";
export { errnoName } from "./errno.ts";
export { ADDON_FILE, AddonError, builtAddonFolder, bundleFolder, loadAddon } from "./load.ts";
