-- Takes items from each of the places where they wait, as entries with their `position` and their `past`, but for those that do
-- not go out yet, or not any more.
-- NEEDS: ready delayed log ranked
--- @include partition positions entries history ordering passed ranks hints ends
local taking = {}

-- Whether an item that is next goes out: not when its time is over or has yet to come, nor while another of its group is ahead.
local function goes(position, entry, group, past)
  if entry.hints == '' then return ordering.admits(position, group) end
  ordering.skipped = ordering.skipped + 1
  -- It may be here before what is due has been moved.
  if hints.of(entry).after > 0 then redis.call('ZREM', key.delayed, position) end
  if ends.met(position, entry, past.attempts) or not ordering.admits(position, group) then return false end
  if hints.rests(entry) then
    redis.call('ZADD', key.delayed, hints.of(entry).after, position)
    return false
  end
  ordering.skipped = ordering.skipped - 1
  return true
end

-- Adds an item that has left the order of the log to those taken, if it goes; gives how many that is.
local function take(position, taken)
  local entry = entries.current(position)
  -- Nothing but a hand at redis-cli removes an entry that waits: such an item is passed over.
  if not entry then return 0 end
  -- Its group is its first version's.
  local first = partition.ordered and entry.log_id ~= position and entries.get(position) or entry
  local past = history.of(position)
  if not goes(position, entry, first.key, past) then return 0 end
  entry.position, entry.past = position, past
  taken[#taken + 1] = entry
  return 1
end

function taking.from_ready(count, taken)
  while count > 0 and ordering.skipped < ordering.MOST do
    local out = redis.call('ZRANGE', key.ready, 0, count - 1)
    local last = #out < count
    for _, position in ipairs(out) do count = count - take(position, taken) end
    if #out > 0 then redis.call('ZREM', key.ready, unpack(out)) end
    if last then return end
  end
end

-- Those of some ranks.
function taking.from_ranked(count, taken, first, last)
  while partition.hinted and count > 0 and ordering.skipped < ordering.MOST do
    local out = redis.call('ZRANGEBYSCORE', key.ranked, first, last, 'WITHSCORES', 'LIMIT', 0, count)
    local over = #out < 2 * count
    for i = 1, #out, 2 do
      redis.call('ZADD', key.ranked, out[i + 1] + ranks.AWAY, out[i])
      count = count - take(positions.unpadded(out[i]), taken)
    end
    if over then return end
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
        if goes(position, entry, group, history.NONE) then
          entry.position, entry.past = position, history.NONE
          taken[#taken + 1] = entry
          count = count - 1
          if count == 0 then break end
        end
      end
    end
  end
end

function taking.from_passed(count, taken)
  for _, position in ipairs(partition.selects and passed.after('', '', count) or {}) do
    local entry, past = entries.current(position), history.of(position)
    passed.remove(position)
    if entry and not ends.met(position, entry, past.attempts) then
      entry.position, entry.past = position, past
      taken[#taken + 1] = entry
    end
  end
end
