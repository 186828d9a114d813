-- The record of an item on its way to another node: `attempts jid-length note-length jid note reason`. For a moved item `>NODE` replaces
-- the JID; no JID begins so. `read_handovers` writes the node where the item may have arrived as the note.
local handover_record = {}

function handover_record.write(attempts, jid, note, reason)
  return string.format('%d %d %d ', attempts, #jid, #note) .. jid .. ' ' .. note .. ' ' .. reason
end

-- Returns attempts, jid, note and reason.
function handover_record.read(line)
  local attempts, length, noted, rest = string.match(line, '^(%d+) (%d+) (%d+) (.*)$')
  local ends = length + 1 + noted
  return tonumber(attempts), string.sub(rest, 1, length), string.sub(rest, length + 2, ends), string.sub(rest, ends + 2)
end
