-- Who held an item that came back: `attempts subid subid …`, the last holder first; only such items have one.
-- NEEDS: history
local history = {DEPTH = 8, NONE = {attempts = 0, holders = {}}}

function history.read(line)
  if not line then return history.NONE end
  local attempts, rest = string.match(line, '^(%d+) (.*)$')
  local holders = {}
  for subid in string.gmatch(rest, '%S+') do holders[#holders + 1] = subid end
  return {attempts = tonumber(attempts), holders = holders}
end

function history.of(position)
  return history.read(redis.call('HGET', key.history, position))
end

-- Whether one of these was a holder; names are digits, so none is in another between blanks.
function history.knows(past, subids)
  local among = ' ' .. table.concat(subids, ' ') .. ' '
  for _, subid in ipairs(past.holders) do
    if string.find(among, ' ' .. subid .. ' ', 1, true) then return true end
  end
  return false
end

-- Bounded: the last eight different holders tell Q23, Q24 and Q25 apart well enough for an item tried a thousand times.
function history.add(position, attempts, holder)
  local kept = {holder}
  for _, subid in ipairs(history.of(position).holders) do
    if subid ~= holder and #kept < history.DEPTH then kept[#kept + 1] = subid end
  end
  redis.call('HSET', key.history, position, attempts .. ' ' .. table.concat(kept, ' '))
end
