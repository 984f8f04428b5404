import { file_svc_guest_v1alpha1_exec } from "../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { file_svc_guest_v1alpha1_file_tree } from "../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { file_svc_guest_v1alpha1_files } from "../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { file_svc_guest_v1alpha1_hooks } from "../../shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { file_svc_guest_v1alpha1_restore } from "../../shared/gen/svc/guest/v1alpha1/restore_pb.ts";

const FILES = [
  file_svc_guest_v1alpha1_exec,
  file_svc_guest_v1alpha1_files,
  file_svc_guest_v1alpha1_file_tree,
  file_svc_guest_v1alpha1_hooks,
  file_svc_guest_v1alpha1_restore,
];

/** This library's options, by the names of the schema's fields. */
const OPTIONS: ReadonlyMap<string, string> = new Map(
  FILES.flatMap(({ messages }) =>
    messages.flatMap(({ fields }) => fields.map(({ name, localName }) => [name, localName])),
  ),
);

/** Matches, in order: quoted text of the caller or the guest; a frame's name, which the options lack; a field. */
const WORDS = /"(?:[^"\\]|\\.)*"|\b(?:start|attach)\.(?=[a-z])|\b[a-z]+\d*(?:_[a-z\d]+)+\b/g;

/** An agent's message with this library's options in place of the schema's fields, such as `keep.replaceEnded`. */
export function inOptions(message: string): string {
  return message.replaceAll(WORDS, (word) => {
    if (word.startsWith('"')) return word;
    return word.endsWith(".") ? "" : (OPTIONS.get(word) ?? word);
  });
}
