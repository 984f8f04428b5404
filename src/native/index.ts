export {
  type Addon,
  ADVICE_DONT_NEED,
  ADVICE_NORMAL,
  ADVICE_RANDOM,
  type FdWatch,
  LEADS_GROUP,
  LEADS_SESSION,
  LEADS_TERMINAL_SESSION,
  NO_SUM,
  type NativeSpawnOptions,
  READABLE,
  RESOLVE_BENEATH,
  RESOLVE_NO_MAGICLINKS,
  RESOLVE_NO_SYMLINKS,
  type SummedBy,
  SUM_HERE,
  SUM_ON_THREAD,
  type SummingWriter,
  WORKING_FOLDER,
  WRITABLE,
} from "./addon.ts";
export { errnoName, failedWith } from "./errno.ts";
export { ADDON_FILE, AddonError, builtAddonFolder, bundleFolder, loadAddon } from "./load.ts";
