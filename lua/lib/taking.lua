-- Takes items out of `ready` and the log, as entries with their `position` and their `past`, but for those that do not go yet, or
-- not any more.
-- NEEDS: ready log
--- @include partition entries history ordering times hints
local taking = {}

-- Adds an item that has left the order of the log, if it goes; gives how many that is.
function taking.add(position, taken)
  local entry = entries.current(position)
  -- Nothing but a hand at redis-cli removes an entry that waits: such an item is passed over.
  if not entry then return 0 end
  -- Its group is its first version's.
  local first = partition.ordered and entry.log_id ~= position and entries.get(position) or entry
  local past = history.of(position)
  local admits = entry.hints == '' and ordering.admits or times.admits
  if not admits(position, first.key, entry, past) then return 0 end
  entry.position, entry.past = position, past
  taken[#taken + 1] = entry
  return 1
end

function taking.from_ready(count, taken)
  while count > 0 and ordering.skipped < ordering.MOST do
    local out = redis.call('ZRANGE', key.ready, 0, count - 1)
    local last = #out < count
    for _, position in ipairs(out) do count = count - taking.add(position, taken) end
    if #out > 0 then redis.call('ZREM', key.ready, unpack(out)) end
    if last then return end
  end
end

function taking.from_log(count, taken)
  while count > 0 and partition.cursor ~= partition.tail and ordering.skipped < ordering.MOST do
    -- Where many may be passed over, they are not read one by one.
    local most = partition.ordered and math.max(count, 100) or count
    local found = redis.call('XRANGE', key.log, '(' .. partition.cursor, '+', 'COUNT', most)
    if #found == 0 then partition.cursor = partition.tail end
    for i = 1, #found do
      local entry, position = entries.read(found[i]), found[i][1]
      partition.cursor = position
      -- A version, or what stands in `ranked`: retention keeps those of items that are done as well, and there may be any number.
      if entry.at ~= '' or (entry.hints ~= '' and hints.of(entry).rank) then
        ordering.skipped = ordering.skipped + 1
      else
        local replacement, group = entries.replacement(position), entry.key
        entry = replacement and entries.get(replacement) or entry
        local admits = entry.hints == '' and ordering.admits or times.admits
        if admits(position, group, entry, history.NONE) then
          entry.position, entry.past = position, history.NONE
          taken[#taken + 1] = entry
          count = count - 1
          if count == 0 then break end
        end
      end
    end
  end
end
