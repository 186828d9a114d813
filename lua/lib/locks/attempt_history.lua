-- The attempts of an item that came back or is to be a dead letter; other items have no record. Its first line is `attempts-untried subid
-- subid …`, the last holder first. The second number counts attempts that do not count as tries; it is left out while it is 0. Each further
-- line has an attempt, the oldest first: `ended outcome jid-length jid reason`.
-- And how long such an item rests before its next attempt, where the node asks for it: `retry_delay` of the partition has the first and
-- the longest delay in ms, the factor of each further one, and the share by which each may be shorter.
local attempt_history = {DEPTH = 8, ATTEMPTS = 20, BYTES = 2048, NONE = {attempts = 0, untried = 0, holders = {}}}

function attempt_history.read(line)
  if not line then return attempt_history.NONE end
  local attempts, untried, rest = string.match(line, '^(%d+)%-?(%d*) ([^\n]*)')
  local holders = {}
  for subid in string.gmatch(rest, '%S+') do holders[#holders + 1] = subid end
  return {attempts = tonumber(attempts), untried = tonumber(untried) or 0, holders = holders}
end

function attempt_history.of(position)
  return attempt_history.read(redis.call('HGET', key.history, position))
end

-- Returns the lines of an item's last attempts, empty when there are none.
function attempt_history.lines(position)
  return string.match(redis.call('HGET', key.history, position) or '', '\n(.*)$') or ''
end

-- Returns earlier lines and this one: the last ones that are few and short enough.
local function lines_with(earlier, flight, outcome, reason)
  -- A line break in a reason would look like another attempt.
  local text = string.gsub(flight.jid .. ' ' .. reason, '%c', ' ')
  local found = {string.format('%s %s %d ', call.partition_stamp, outcome, #flight.jid) .. text}
  for line in string.gmatch(earlier, '[^\n]+') do table.insert(found, #found, line) end
  local first, bytes = #found, #found[#found]
  while first > 1 and #found - first + 1 < attempt_history.ATTEMPTS and bytes + #found[first - 1] < attempt_history.BYTES do
    first = first - 1
    bytes = bytes + #found[first]
  end
  return table.concat(found, '\n', first)
end

-- Adds an attempt that has ended. Bounded: the last eight different holders distinguish Q23, Q24 and Q25 well enough, even for an item
-- tried a thousand times.
function attempt_history.add(flight, outcome, reason, untried)
  local line = redis.call('HGET', key.history, flight.position)
  local kept, past, attempts = {flight.subid}, attempt_history.read(line), flight.attempt
  for _, subid in ipairs(past.holders) do
    if subid ~= flight.subid and #kept < attempt_history.DEPTH then kept[#kept + 1] = subid end
  end
  local none = past.untried + (untried and 1 or 0)
  if none > 0 then attempts = attempts .. '-' .. none end
  redis.call('HSET', key.history, flight.position, attempts .. ' ' .. table.concat(kept, ' ') .. '\n'
    .. lines_with(line and string.match(line, '\n(.*)$') or '', flight, outcome, reason))
end

-- Returns the number of tries including this attempt, which has not ended yet.
function attempt_history.count(position, attempt)
  return attempt == 1 and 1 or attempt - attempt_history.of(position).untried
end

-- Whether the tries are used up; a `most` of 0 is no limit.
function attempt_history.exhausted(position, attempt, most)
  return most > 0 and attempt >= most and attempt_history.count(position, attempt) >= most
end

-- Returns a number from 0 to below 1 that depends only on the item and its attempt: every replica and every repeat finds the same one.
-- The multiples of these irrational numbers spread evenly.
local function chance(position, tries)
  local ms, seq = positions.split(position)
  local sum = ms % 1000000 * 0.6180339887498949 + seq * 0.7548776662466927 + tries * 0.5698402909980532
  return sum - math.floor(sum)
end

-- Returns in ms how long an item rests after this attempt: 0 where the node does not ask for it. Attempts that do not count as tries do
-- not lengthen it.
function attempt_history.rest_after(position, attempt)
  local rule = call.partition_options.retry_delay
  if not rule then return 0 end
  local tries = attempt_history.count(position, attempt)
  local delay = math.min(rule.first * rule.backoff ^ (tries - 1), rule.longest)
  return math.floor(delay * (1 - rule.jitter * chance(position, tries)))
end
