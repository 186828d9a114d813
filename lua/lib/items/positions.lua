-- Positions: the log ids that name items inside a partition, their order, and the item ids made from them.
local positions = {}

function positions.split(position)
  local ms, seq = string.match(position, '^(%d+)%-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

-- Returns a text that sorts as the log does.
function positions.pad(position)
  local ms, seq = string.match(position, '^(%d+)-(%d+)$')
  return string.rep('0', 20 - #ms) .. ms .. string.rep('0', 20 - #seq) .. seq
end

-- Returns the last position that can be before this one.
function positions.before(position)
  local ms, seq = positions.split(position)
  if seq > 0 then return string.format('%.0f-%.0f', ms, seq - 1) end
  return ms > 0 and string.format('%.0f-18446744073709551615', ms - 1) or '0-0'
end

-- Returns a number that sorts as the log does. 1,024 numbers a millisecond keep it below 2^53 until the year 2248; items past the 1,023rd
-- of one millisecond share a number and then sort by their text.
function positions.place(position)
  local ms, seq = positions.split(position)
  return ms * 1024 + math.min(seq, 1023)
end

function positions.after(a, b)
  -- Positions of equal length sort as texts: times have thirteen digits until 2286.
  if #a == #b and string.byte(a, 14) == 45 and string.byte(b, 14) == 45 then return a > b end
  local ams, aseq = positions.split(a)
  local bms, bseq = positions.split(b)
  return ams > bms or (ams == bms and aseq > bseq)
end

-- An id that the service made contains the position, so it needs no index entry: the partition's number, the position.
function positions.item_id(position)
  return arg.number .. '-' .. position
end

-- Whether the service made this id for the item at this position.
function positions.is_made_id(item, position)
  return item == positions.item_id(position)
end

-- Returns the position of an id that the service made; false for any other id. Accepts only what `item_id` writes: Redis reads `7-00` as
-- `7-0` too, and refuses numbers of more than 20 digits.
function positions.of_item_id(item)
  -- Most ids are other ones: comparing the prefix is faster than a pattern.
  local prefix = arg.number .. '-'
  if string.sub(item, 1, #prefix) ~= prefix then return false end
  local position = string.match(item, '^[1-9]%d*%-%d+$', #prefix + 1)
  return position and #position <= 20 and not string.find(position, '%-0%d') and position
end
