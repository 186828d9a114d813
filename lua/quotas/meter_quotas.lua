#!lua
-- Let publishes through that are within the quota of the node's owner and that of the owner's domain, each given as
-- `items bytes count period_ms burst`, with - for what is not limited; empty: no quota. Who may not publish is answered with the subject
-- and how many ms to wait, or with the subject, `items` or `bytes`, and the number in use. `measure` has the subject that must be measured
-- first, and how much was let through until now.
-- ARGV: now domain domain_quota idle_seconds | owner quota bytes
-- RETURNS: ok | ok too-fast quota-exceeded measure
local MEASURED_MS = 10000
local known, results = {}, {}
call.partition_micros = clock.micros()
local now = math.floor(call.partition_micros / 1000)

local function limits(subject, quota)
  if quota == '' then return nil end
  local each = known[subject]
  if not each then
    local most, most_bytes, rule = string.match(quota, '^(%S+) (%S+) (.+)$')
    each = {subject = subject, most = tonumber(most), most_bytes = tonumber(most_bytes), use = quota_use.read(subject),
      rate = string.sub(rule, 1, 2) ~= '0 ' and rate_limit.read(rule) or nil}
    known[subject] = each
  end
  return each
end

-- Returns nil for a publish that this subject may make.
local function refusal(each, bytes)
  local use = each.use
  if each.most or each.most_bytes then
    local count, size = use.count + use.added_count, use.bytes + use.added_bytes
    local over = each.most and count + 1 > each.most and 'items' or each.most_bytes and size + bytes > each.most_bytes and 'bytes'
    -- After the clock was set back, or without a measurement, nothing is known.
    if now >= use.measured + MEASURED_MS or now < use.measured or over and now >= use.due then
      return {'measure', each.subject, string.format('%.0f', use.added_count), string.format('%.0f', use.added_bytes)}
    end
    if over then
      return {'quota-exceeded', each.subject, over, string.format('%.0f', over == 'items' and count or size)}
    end
  end
  if each.rate and rate_limit.room(each.rate, use.rate_at) < 1 then
    -- After the clock was set back, the rate goes on from the clock.
    use.rate_at = rate_limit.after(each.rate, use.rate_at, 0)
    return {'too-fast', each.subject, rate_limit.next_ms(each.rate, use.rate_at) - now}
  end
end

local function admit(each, bytes)
  local use = each.use
  use.added_count, use.added_bytes = use.added_count + 1, use.added_bytes + bytes
  if each.rate then use.rate_at = rate_limit.after(each.rate, use.rate_at, 1) end
end

for i, row in ipairs(rows) do
  local owner, domain, bytes = limits(row.owner, row.quota), limits(arg.domain, arg.domain_quota), tonumber(row.bytes)
  if owner == domain then owner = nil end
  local refused = owner and refusal(owner, bytes) or domain and refusal(domain, bytes)
  if not refused then
    if owner then admit(owner, bytes) end
    if domain then admit(domain, bytes) end
  end
  results[i] = refused or {'ok'}
end
for subject, each in pairs(known) do quota_use.write(subject, each.use) end
return {'ok', results}
