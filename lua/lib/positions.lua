-- Positions: the log ids that name items inside a partition, their order, and the item ids made from them.
-- NEEDS:
local positions = {}

function positions.split(position)
  local ms, seq = string.match(position, '^(%d+)%-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

-- A number that sorts as the log does. 1,024 places a millisecond keep it below 2^53 until the year 2248; items past
-- the 1,023rd of one millisecond share a place and then sort by their text.
function positions.place(position)
  local ms, seq = positions.split(position)
  return ms * 1024 + math.min(seq, 1023)
end

function positions.after(a, b)
  local ams, aseq = positions.split(a)
  local bms, bseq = positions.split(b)
  return ams > bms or (ams == bms and aseq > bseq)
end

-- An id that the service made says where its item is, so it needs no index entry.
function positions.item_id(position)
  return arg.number .. '-' .. position
end

function positions.of_item_id(item)
  return string.match(item, '^' .. arg.number .. '%-(%d+%-%d+)$')
end
