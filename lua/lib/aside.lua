-- Takes items from where only some stand: of another priority than usual, or passed over; and the one that gives way where a node
-- is full.
-- NEEDS: ranked
-- LAZY: where publishers ask for something, somebody selects, or a node is full
--- @include partition positions entries history ordering passed hints times taking
local aside = {}

-- Those of some ranks.
function aside.ranked(count, taken, first, last)
  while count > 0 and ordering.skipped < ordering.MOST do
    local out = redis.call('ZRANGEBYSCORE', key.ranked, first, last, 'WITHSCORES', 'LIMIT', 0, count)
    for i = 1, #out, 2 do
      redis.call('ZADD', key.ranked, out[i + 1] + hints.AWAY, out[i])
      count = count - taking.add(positions.unpadded(out[i]), taken)
    end
    if #out == 0 then return end
  end
end

function aside.passed(count, taken)
  for _, position in ipairs(passed.after('', '', count)) do
    local entry, past = entries.current(position), history.of(position)
    passed.remove(position)
    if entry and not (entry.hints ~= '' and times.over(position, entry, past.attempts)) then
      entry.position, entry.past = position, past
      taken[#taken + 1] = entry
    end
  end
end

-- Of the lowest priority the oldest; nil when nothing may go.
function aside.oldest()
  local taken = {}
  local function of_ranks(lowest, highest)
    for rank = lowest, partition.hinted and highest or lowest + 1, -1 do aside.ranked(1 - #taken, taken, rank, rank) end
  end
  of_ranks(hints.LAST, hints.USUAL + 1)
  if partition.selects then aside.passed(1 - #taken, taken) end
  taking.from_ready(1 - #taken, taken)
  taking.from_log(1 - #taken, taken)
  of_ranks(hints.USUAL - 1, 0)
  return taken[1]
end
