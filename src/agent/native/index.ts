export {
  type Addon,
  ADVICE_DONT_NEED,
  ADVICE_NORMAL,
  ADVICE_RANDOM,
  type FdWatch,
  NO_SUM,
  READABLE,
  RESOLVE_BENEATH,
  RESOLVE_NO_MAGICLINKS,
  RESOLVE_NO_SYMLINKS,
  RESOLVE_NO_XDEV,
  type SpawnSettings,
  type SummedBy,
  SUM_HERE,
  SUM_ON_THREAD,
  type SummingWriter,
  WORKING_FOLDER,
  WRITABLE,
} from "./addon.ts";
export { errnoName, failedWith, negatedErrno } from "./errno.ts";
export { ADDON_FILE, AddonError, builtAddonFolder, bundleFolder, loadAddon } from "./load.ts";
